// Behavioural DRAM behind one AXI4 port, with the rules of docs/timing.md, section DRAM.
//
// Service is strictly in order of arrival, so a request's start and end follow from the state at its
// arrival; they are computed once, there. Cycle 0 is the cycle in which `restart` is high.
// Data move when beats do: W beats are written when accepted (or with their address, where they come before it), R
// beats are fetched when driven. The host reads and writes the array through files (in.bin, out.bin in the folder
// +dir=), so that no Python runs per word. `+dram_words=` makes the memory smaller than its array, so that one simulator
// serves all sizes up to that.
//
// Modes that break the timing rules on purpose: channels of `stall_channels` stall with a chance of `stall` (in 1/256;
// 255: they never answer), W beats go before their address (`order`), bursts or beats end in errors. The text is
// SystemVerilog that Icarus 11 reads too: no structs.

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
    input logic [4:0] stall_channels,  // AR, R, AW, W, B from bit 0
    input logic [1:0] order,  // of a burst's W beats and address: see below
    input logic error_enable,  // bursts that touch error_word answer SLVERR
    input logic error_beat,  // of a read burst the beat of error_word alone
    input logic [31:0] error_word,

    output longint unsigned cycle,   // number of the present cycle
    output logic [7:0] queue_error   // sticky; see the bits below
);
  localparam int QUEUE = 256;
  localparam logic [1:0] READ = 1, WRITE = 2;
  localparam int AR = 0, R = 1, AW = 2, W = 3, B = 4;
  // Orders: W beats with their address or after it; in any order; an address only behind its last W beat.
  localparam logic [1:0] ADDRESS_FIRST = 0, ANY = 1, DATA_FIRST = 2;
  // Bits of queue_error.
  localparam int OVERFLOW = 0, WLAST = 1, W_BEFORE_AW = 2, BUSY_RESTART = 3, HOST_FILE = 4;

  logic [BUS_BYTES*8-1:0] memory[WORDS];
  int unsigned words;  // of them there are
  initial if (!$value$plusargs("dram_words=%d", words) || words > WORDS) words = WORDS;

  // Bursts that wait, W beats that wait for their address, responses that wait.
  longint unsigned read_start[QUEUE], read_word[QUEUE], write_word[QUEUE], response_end[QUEUE];
  int unsigned read_beats[QUEUE], write_beats[QUEUE];
  logic [1:0] read_resp[QUEUE], response_code[QUEUE];
  logic [BUS_BYTES*8-1:0] beat_data[QUEUE];
  logic [BUS_BYTES-1:0] beat_strb[QUEUE];
  logic beat_last[QUEUE];
  logic [7:0] read_head, read_tail, write_head, write_tail, response_head, response_tail, beat_head, beat_tail;
  logic [7:0] ahead;  // bursts whose W beats are all here and whose address is not
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
    if (word + n > words) return 2'b11;
    if (error_enable && error_word >= word && error_word < word + n) return 2'b10;
    return 2'b00;
  endfunction

  logic [31:0] random;
  function automatic logic stalled(input int channel);
    random = (random >> 1) ^ (random[0] ? 32'hA3000000 : 0);
    return stall_channels[channel] && (stall == 255 || random[7:0] < stall);
  endfunction

  string folder;
  int file, moved;
  initial begin
    if (!$value$plusargs("dir=%s", folder)) folder = ".";
    random = 32'h1234567;
  end

  // Files hold each bus word with its highest byte first ($fread) or 32-bit pieces, lowest first (%u).
  task automatic host;
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
      if (read_beat == read_beats[read_head]) begin
        read_head = read_head + 1;
        read_beat = 0;
      end
    end
    if (bvalid && bready) response_head = response_head + 1;

    // Arrivals: reads first.
    if (arvalid && arready) begin
      read_word[read_tail] = longint'(araddr) / BUS_BYTES;
      read_beats[read_tail] = int'(arlen) + 1;
      read_resp[read_tail] = response(read_word[read_tail], read_beats[read_tail]);
      read_start[read_tail] = schedule(READ, read_word[read_tail], read_beats[read_tail], now);
      read_tail = read_tail + 1;
      if (read_tail == read_head) queue_error[OVERFLOW] = 1;
    end
    if (awvalid && awready) begin
      write_word[write_tail] = longint'(awaddr) / BUS_BYTES;
      write_beats[write_tail] = int'(awlen) + 1;
      write_tail = write_tail + 1;
      if (write_tail == write_head) queue_error[OVERFLOW] = 1;
      ahead = ahead - 1;
    end
    if (wvalid && wready) begin
      if (order == ADDRESS_FIRST && write_head == write_tail) queue_error[W_BEFORE_AW] = 1;
      beat_data[beat_tail] = wdata;
      beat_strb[beat_tail] = wstrb;
      beat_last[beat_tail] = wlast;
      beat_tail = beat_tail + 1;
      if (beat_tail == beat_head) queue_error[OVERFLOW] = 1;
      if (wlast) ahead = ahead + 1;
    end
    while (beat_head != beat_tail && write_head != write_tail) begin
      if (beat_last[beat_head] != (write_beat + 1 == write_beats[write_head])) queue_error[WLAST] = 1;
      if (write_word[write_head] + write_beat < words)
        for (int i = 0; i < BUS_BYTES; i++)
          if (beat_strb[beat_head][i])
            memory[write_word[write_head]+write_beat][i*8+:8] = beat_data[beat_head][i*8+:8];
      beat_head = beat_head + 1;
      write_beat = write_beat + 1;
      if (write_beat == write_beats[write_head]) begin
        start_cycle = schedule(WRITE, write_word[write_head], write_beat, now);
        response_end[response_tail] = start_cycle + longint'(write_beat) * BEAT_CYCLES;
        response_code[response_tail] = response(write_word[write_head], write_beat);
        response_tail = response_tail + 1;
        write_head = write_head + 1;
        write_beat = 0;
      end
    end
    host();

    // What the device sees in the next cycle.
    if (!rvalid || rready) begin
      rvalid <= 0;
      if (read_head != read_tail && read_start[read_head] + read_beat * BEAT_CYCLES <= now + 1
          && !stalled(R)) begin
        rvalid <= 1;
        rdata <= read_word[read_head] + read_beat < words ? memory[read_word[read_head]+read_beat] : 0;
        rresp <= error_beat && read_resp[read_head] == 2'b10 && read_word[read_head] + read_beat != error_word
            ? 2'b00 : read_resp[read_head];
        rlast <= read_beat + 1 == read_beats[read_head];
      end
    end
    if (!bvalid || bready) begin
      bvalid <= 0;
      if (response_head != response_tail && response_end[response_head] <= now + 1 && !stalled(B)) begin
        bvalid <= 1;
        bresp <= response_code[response_head];
      end
    end
    arready <= !stalled(AR);
    awready <= !stalled(AW) && (order != DATA_FIRST || (ahead != 0 && !ahead[7]));
    wready <= !stalled(W) && (stall == 0 || order != ADDRESS_FIRST || write_head != write_tail);

    if (rst) begin
      {read_head, read_tail, write_head, write_tail, response_head, response_tail, beat_head, beat_tail} = '0;
      ahead = 0;
      read_beat = 0;
      write_beat = 0;
      bus_free = 0;
      direction = 0;
      queue_error = 0;
      count <= 0;
      rvalid <= 0;
      bvalid <= 0;
      arready <= 1;
      awready <= order != DATA_FIRST;
      wready <= 1;
    end
  end
endmodule
