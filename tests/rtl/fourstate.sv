// The device under a four-state simulator: one launch against a plain in-order DRAM.
//
// Reads host.hex (pairs of register address and value, the start command last) and dram.hex (one bus
// word a line); writes after.hex. From the end of reset on, every output must be known in every cycle; the
// payload of an AXI channel only while it is valid when +payload=valid is given. Prints the unknown outputs.

// A sum in which an unknown bit reaches itself and the bits above it, as in an adder of gates; with "+" it
// makes the whole sum unknown.
function automatic [32:0] add_bitwise(input [31:0] a, input [31:0] b);
  reg carry;
  integer i;
  begin
    carry = 0;
    for (i = 0; i < 32; i = i + 1) begin
      add_bitwise[i] = a[i] ^ b[i] ^ carry;
      carry = (a[i] & b[i]) | (carry & (a[i] | b[i]));
    end
    add_bitwise[32] = carry;
  end
endfunction

module fourstate #(
    parameter ADDRESS_BITS = 32,
    parameter BUS_BYTES = 4,
    parameter WORDS = 1 << 16,
    parameter HOST_WRITES = 1,
    parameter LATENCY = 20,
    parameter WATCHDOG = 200000
);
  localparam BITS = 8 * BUS_BYTES;

  reg clk = 0, rst = 1, checking = 0, payload_always = 1;
  reg [11:0] s_axil_awaddr = 0;
  reg [31:0] s_axil_wdata = 0;
  reg s_axil_awvalid = 0, s_axil_wvalid = 0;
  wire s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid;
  wire [1:0] s_axil_bresp, s_axil_rresp;
  wire [31:0] s_axil_rdata;

  wire [ADDRESS_BITS-1:0] araddr, awaddr;
  wire [7:0] arlen, awlen;
  wire arvalid, rready, awvalid, wlast, wvalid, bready, irq, trace_start;
  wire [BITS-1:0] wdata;
  wire [BUS_BYTES-1:0] wstrb;
  wire [4:0] trace_issue, trace_finish;
  wire [2:0] arsize, awsize, arprot, awprot;
  wire [1:0] arburst, awburst;
  wire [3:0] arcache, awcache, arqos, awqos;
  wire arid, awid, arlock, awlock;
  reg rvalid = 0, rlast = 0, bvalid = 0;
  reg [BITS-1:0] rdata = 0;

  gemmule device (
      .clk(clk), .rst(rst), .irq(irq), .trace_start(trace_start), .trace_issue(trace_issue),
      .trace_finish(trace_finish),
      .s_axil_awaddr(s_axil_awaddr), .s_axil_awvalid(s_axil_awvalid), .s_axil_awready(s_axil_awready),
      .s_axil_wdata(s_axil_wdata), .s_axil_wstrb(4'hF), .s_axil_wvalid(s_axil_wvalid),
      .s_axil_wready(s_axil_wready), .s_axil_bresp(s_axil_bresp), .s_axil_bvalid(s_axil_bvalid),
      .s_axil_bready(1'b1), .s_axil_araddr(12'h004), .s_axil_arvalid(1'b1), .s_axil_arready(s_axil_arready),
      .s_axil_rdata(s_axil_rdata), .s_axil_rresp(s_axil_rresp), .s_axil_rvalid(s_axil_rvalid), .s_axil_rready(1'b1),
      .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst),
      .m_axi_arcache(arcache), .m_axi_arprot(arprot), .m_axi_arqos(arqos), .m_axi_arid(arid), .m_axi_arlock(arlock),
      .m_axi_arvalid(arvalid), .m_axi_arready(1'b1), .m_axi_rid(1'b0), .m_axi_rdata(rdata), .m_axi_rresp(2'b00),
      .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
      .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst),
      .m_axi_awcache(awcache), .m_axi_awprot(awprot), .m_axi_awqos(awqos), .m_axi_awid(awid), .m_axi_awlock(awlock),
      .m_axi_awvalid(awvalid), .m_axi_awready(1'b1), .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast),
      .m_axi_wvalid(wvalid), .m_axi_wready(1'b1), .m_axi_bid(1'b0), .m_axi_bresp(2'b00), .m_axi_bvalid(bvalid),
      .m_axi_bready(bready)
  );

  always #5 clk = !clk;

  // Every output, looked at in the middle of the cycle. Unknown bits of one group are one message.
  integer unknown = 0;

  task automatic known(input [20*8-1:0] name, input bad);
    if (bad) begin
      if (unknown < 10) $display("unknown: %0s at %0t", name, $time);
      unknown = unknown + 1;
    end
  endtask

  always @(negedge clk)
    if (checking) begin
      known("valid or ready", ^{arvalid, rready, awvalid, wvalid, bready, s_axil_awready, s_axil_wready,
                                s_axil_bvalid, s_axil_arready, s_axil_rvalid} === 1'bx);
      known("irq or trace", ^{irq, trace_start, trace_issue, trace_finish} === 1'bx);
      known("ar", (payload_always || arvalid)
            && ^{araddr, arlen, arsize, arburst, arcache, arprot, arqos, arid, arlock} === 1'bx);
      known("aw", (payload_always || awvalid)
            && ^{awaddr, awlen, awsize, awburst, awcache, awprot, awqos, awid, awlock} === 1'bx);
      known("w", (payload_always || wvalid) && ^{wdata, wstrb, wlast} === 1'bx);
      known("s_axil_r", (payload_always || s_axil_rvalid) && ^{s_axil_rdata, s_axil_rresp} === 1'bx);
      known("s_axil_b", (payload_always || s_axil_bvalid) && ^s_axil_bresp === 1'bx);
    end

  // DRAM: bursts in order of arrival, a fixed latency between them; reads and writes side by side.
  reg [BITS-1:0] memory[0:WORDS-1];
  reg [ADDRESS_BITS-1:0] read_word[0:255], write_word[0:255];
  reg [7:0] read_last[0:255], write_last[0:255];
  reg [7:0] read_head = 0, read_tail = 0, write_head = 0, write_tail = 0, read_beat = 0, write_beat = 0;
  integer wait_read = LATENCY, responses = 0, i;

  always @(posedge clk)
    if (rst) begin
      rvalid <= 0;
      bvalid <= 0;
    end else begin
      if (arvalid === 1) begin
        read_word[read_tail] = araddr / BUS_BYTES;
        read_last[read_tail] = arlen;
        read_tail = read_tail + 1;
      end
      if (awvalid === 1) begin
        write_word[write_tail] = awaddr / BUS_BYTES;
        write_last[write_tail] = awlen;
        write_tail = write_tail + 1;
      end
      if (wvalid === 1) begin
        if (write_head == write_tail) $display("protocol: a W beat before its address");
        for (i = 0; i < BUS_BYTES; i = i + 1)
          if (wstrb[i] !== 0) memory[write_word[write_head]+write_beat][8*i+:8] = wdata[8*i+:8];
        write_beat = write_beat + 1;
        if (wlast === 1) begin
          if (write_beat != write_last[write_head] + 1) $display("protocol: wlast at beat %0d", write_beat);
          write_head = write_head + 1;
          write_beat = 0;
          responses = responses + 1;
        end
      end
      if (bvalid && bready === 1) responses = responses - 1;
      bvalid <= responses != 0;
      if (!rvalid || rready === 1) begin
        rvalid <= 0;
        if (read_head != read_tail) begin
          if (wait_read != 0) wait_read = wait_read - 1;
          else begin
            rvalid <= 1;
            rdata <= memory[read_word[read_head]+read_beat];
            rlast <= read_beat == read_last[read_head];
            read_beat = read_beat + 1;
            if (read_beat == read_last[read_head] + 1) begin
              read_head = read_head + 1;
              read_beat = 0;
              wait_read = LATENCY;
            end
          end
        end
      end
    end

  // Host: registers, start, interrupt.
  reg [31:0] host[0:2*HOST_WRITES-1];
  integer n, cycles;
  reg [8*8-1:0] payload;

  initial begin
    $readmemh("host.hex", host);
    $readmemh("dram.hex", memory);
    if ($value$plusargs("payload=%s", payload)) payload_always = payload != "valid";
    repeat (4) @(negedge clk);
    rst <= 0;
    checking <= 1;
    for (n = 0; n < HOST_WRITES; n = n + 1) begin
      s_axil_awaddr <= host[2*n];
      s_axil_wdata  <= host[2*n+1];
      s_axil_awvalid <= 1;
      s_axil_wvalid  <= 1;
      #1;
      while (s_axil_awvalid || s_axil_wvalid) begin : handshake
        reg address_taken, data_taken;
        @(posedge clk);
        address_taken = s_axil_awready === 1;
        data_taken = s_axil_wready === 1;
        @(negedge clk);
        if (address_taken) s_axil_awvalid = 0;
        if (data_taken) s_axil_wvalid = 0;
      end
    end
    cycles = 0;
    while (irq !== 1 && cycles < WATCHDOG) begin
      @(negedge clk);
      cycles = cycles + 1;
    end
    $display("%0s after %0d cycles, %0d unknown outputs", irq === 1 ? "interrupt" : "no interrupt", cycles, unknown);
    $writememh("after.hex", memory);
    $finish;
  end
endmodule
