// Behavioural DRAM behind one AXI4 port, with the rules of docs/timing.md, section DRAM.
//
// Service is strictly in order of arrival, so a request's start and end follow from the state at its
// arrival; they are computed once, there. Cycle 0 is the cycle in which `restart` is high.
// Data move when beats do: W beats are written when accepted, R beats are fetched when driven.
// The host reads and writes the array through files (in.bin, out.bin in the folder +dir=), so that
// no Python runs per word. A non-zero `stall` (in 1/256; 255: it never answers) breaks the timing rules on purpose.

module gemmule_dram #(
    parameter int ADDRESS_BITS = 32,
    parameter int BUS_BYTES = 4,
    parameter int WORDS = 1 << 20,
    parameter int LATENCY = 60,
    parameter int BANKS = 8,
    parameter int ROW_BYTES = 2048,
    parameter int ROW_MISS = 28,
    parameter int TURNAROUND = 4,
    parameter int BEAT_CYCLES = 1,
    parameter int REFRESH_CYCLES = 140,
    parameter int REFRESH_PERIOD = 3900
) (
    input logic clk,
    input logic rst,
    input logic restart,

    input  logic [ADDRESS_BITS-1:0] araddr,
    input  logic [7:0] arlen,
    input  logic arvalid,
    output logic arready,
    output logic [BUS_BYTES*8-1:0] rdata,
    output logic [1:0] rresp,
    output logic rlast,
    output logic rvalid,
    input  logic rready,
    input  logic [ADDRESS_BITS-1:0] awaddr,
    input  logic [7:0] awlen,
    input  logic awvalid,
    output logic awready,
    input  logic [BUS_BYTES*8-1:0] wdata,
    input  logic [BUS_BYTES-1:0] wstrb,
    input  logic wlast,
    input  logic wvalid,
    output logic wready,
    output logic [1:0] bresp,
    output logic bvalid,
    input  logic bready,

    input logic [2:0] host_op,  // 1: in.bin to memory, 2: memory to out.bin, 3: fill with host_fill
    input logic [31:0] host_word,
    input logic [31:0] host_count,
    input logic [31:0] host_fill,
    input logic [7:0] stall,
    input logic error_enable,  // bursts that touch error_word answer SLVERR
    input logic [31:0] error_word,

    output longint unsigned cycle,   // number of the present cycle
    output logic [7:0] queue_error   // sticky; see the bits below
);
  localparam int QUEUE = 256;
  localparam logic [1:0] READ = 1, WRITE = 2;
  // Bits of queue_error.
  localparam int OVERFLOW = 0, WLAST = 1, W_BEFORE_AW = 2, BUSY_RESTART = 3, HOST_FILE = 4;

  logic [BUS_BYTES*8-1:0] memory[WORDS];

  typedef struct {
    longint unsigned start;
    longint unsigned word;
    int unsigned     beats;
    logic [1:0]      resp;
  } burst_t;

  burst_t reads[QUEUE], writes[QUEUE];
  longint unsigned response_end[QUEUE];
  logic [1:0] response_code[QUEUE];
  logic [7:0] read_head, read_tail, write_head, write_tail, response_head, response_tail;
  int unsigned read_beat, write_beat;

  longint unsigned count, bus_free, bank_end[BANKS], open_row[BANKS], start_cycle;
  logic bank_open[BANKS];
  logic [1:0] direction;

  assign cycle = restart ? 0 : count;

  // One request of n beats arrives: returns its start cycle and updates the banks and the bus.
  function automatic longint unsigned schedule(input logic [1:0] kind, input longint unsigned word,
                                               input int unsigned n, input longint unsigned arrival);
    longint unsigned index, row, prep, start, period, duration;
    int unsigned bank;
    duration = longint'(n) * BEAT_CYCLES;
    index = word * BUS_BYTES / ROW_BYTES;
    bank = int'(index % BANKS);
    row = index / BANKS;
    prep = arrival;
    if (!bank_open[bank] || open_row[bank] != row) begin
      if (bank_end[bank] > prep) prep = bank_end[bank];
      prep = prep + ROW_MISS;
    end
    start = bus_free;
    if (direction != 0 && direction != kind) start = start + TURNAROUND;
    if (prep + LATENCY > start) start = prep + LATENCY;
    if (REFRESH_PERIOD > 0) begin
      period = (start + duration - 1) / REFRESH_PERIOD;
      if (period >= 1 && start < period * REFRESH_PERIOD + REFRESH_CYCLES)
        start = period * REFRESH_PERIOD + REFRESH_CYCLES;
    end
    bus_free = start + duration;
    bank_end[bank] = start + duration;
    bank_open[bank] = 1;
    open_row[bank] = row;
    direction = kind;
    return start;
  endfunction

  function automatic logic [1:0] response(input longint unsigned word, input int unsigned n);
    if (word + n > WORDS) return 2'b11;
    if (error_enable && error_word >= word && error_word < word + n) return 2'b10;
    return 2'b00;
  endfunction

  logic [31:0] random;
  function automatic logic stalled();
    random = (random >> 1) ^ (random[0] ? 32'hA3000000 : 0);
    return stall == 255 || random[7:0] < stall;
  endfunction

  string folder;
  int file, moved;
  initial begin
    if (!$value$plusargs("dir=%s", folder)) folder = ".";
    random = 32'h1234567;
  end

  // Files hold each bus word with its highest byte first ($fread) or 32-bit pieces, lowest first (%u).
  task automatic host();
    case (host_op)
      1: begin
        file = $fopen({folder, "/in.bin"}, "rb");
        moved = (file == 0) ? 0 : $fread(memory, file, host_word, host_count);
        if (moved != host_count * BUS_BYTES) queue_error[HOST_FILE] = 1;
        if (file != 0) $fclose(file);
      end
      2: begin
        file = $fopen({folder, "/out.bin"}, "wb");
        if (file == 0) queue_error[HOST_FILE] = 1;
        for (int unsigned i = 0; i < host_count; i++) $fwrite(file, "%u", memory[host_word+i]);
        if (file != 0) $fclose(file);
      end
      3: for (int unsigned i = 0; i < host_count; i++)
           memory[host_word+i] = {(BUS_BYTES + 3) / 4{host_fill}};
      default: ;
    endcase
  endtask

  always @(posedge clk) begin : serve
    longint unsigned now;
    now = cycle;
    count <= now + 1;
    if (restart) begin
      if (read_head != read_tail || write_head != write_tail || response_head != response_tail)
        queue_error[BUSY_RESTART] = 1;
      bus_free = 0;
      direction = 0;
      for (int i = 0; i < BANKS; i++) begin
        bank_end[i] = 0;
        bank_open[i] = 0;
      end
    end

    // Beats and responses that the device takes in this cycle.
    if (rvalid && rready) begin
      read_beat = read_beat + 1;
      if (read_beat == reads[read_head].beats) begin
        read_head = read_head + 1;
        read_beat = 0;
      end
    end
    if (bvalid && bready) response_head = response_head + 1;

    // Arrivals: reads first.
    if (arvalid && arready) begin
      reads[read_tail].word = longint'(araddr) / BUS_BYTES;
      reads[read_tail].beats = int'(arlen) + 1;
      reads[read_tail].resp = response(reads[read_tail].word, reads[read_tail].beats);
      reads[read_tail].start = schedule(READ, reads[read_tail].word, reads[read_tail].beats, now);
      read_tail = read_tail + 1;
      if (read_tail == read_head) queue_error[OVERFLOW] = 1;
    end
    if (awvalid && awready) begin
      writes[write_tail].word = longint'(awaddr) / BUS_BYTES;
      writes[write_tail].beats = int'(awlen) + 1;
      write_tail = write_tail + 1;
      if (write_tail == write_head) queue_error[OVERFLOW] = 1;
    end
    if (wvalid && wready) begin
      if (write_head == write_tail) queue_error[W_BEFORE_AW] = 1;
      if (wlast != (write_beat + 1 == writes[write_head].beats)) queue_error[WLAST] = 1;
      if (writes[write_head].word + write_beat < WORDS)
        for (int i = 0; i < BUS_BYTES; i++)
          if (wstrb[i]) memory[writes[write_head].word+write_beat][i*8+:8] = wdata[i*8+:8];
      write_beat = write_beat + 1;
      if (write_beat == writes[write_head].beats) begin
        start_cycle = schedule(WRITE, writes[write_head].word, write_beat, now);
        response_end[response_tail] = start_cycle + longint'(write_beat) * BEAT_CYCLES;
        response_code[response_tail] = response(writes[write_head].word, write_beat);
        response_tail = response_tail + 1;
        write_head = write_head + 1;
        write_beat = 0;
      end
    end
    host();

    // What the device sees in the next cycle.
    if (!rvalid || rready) begin
      rvalid <= 0;
      if (read_head != read_tail && reads[read_head].start + read_beat * BEAT_CYCLES <= now + 1
          && !stalled()) begin
        rvalid <= 1;
        rdata <= reads[read_head].word + read_beat < WORDS ? memory[reads[read_head].word+read_beat] : 0;
        rresp <= reads[read_head].resp;
        rlast <= read_beat + 1 == reads[read_head].beats;
      end
    end
    if (!bvalid || bready) begin
      bvalid <= 0;
      if (response_head != response_tail && response_end[response_head] <= now + 1 && !stalled()) begin
        bvalid <= 1;
        bresp <= response_code[response_head];
      end
    end
    arready <= !stalled();
    awready <= !stalled();
    wready <= stall == 0 || (write_head != write_tail && !stalled());  // never before its address

    if (rst) begin
      {read_head, read_tail, write_head, write_tail, response_head, response_tail} = '0;
      read_beat = 0;
      write_beat = 0;
      bus_free = 0;
      direction = 0;
      queue_error = 0;
      count <= 0;
      rvalid <= 0;
      bvalid <= 0;
      arready <= 1;
      awready <= 1;
      wready <= 1;
    end
  end
endmodule
