// Testbench of the generated top: the device, its DRAM, an event log, AXI protocol checks and, where the macro CLAIMS
// names the device's claims, the check of claims_check.sv.
//
// cocotb sees only the ports. One log record is written to log.bin (in the folder +dir=) for every
// cycle of a launch in which a command issues or finishes: two 32-bit words, the cycle and
// {finish[4:0], issue[4:0]}. The n-th issue of a unit belongs to its n-th dispatched command.

module gemmule_tb #(
    parameter int ADDRESS_BITS = 32,
    parameter int BUS_BYTES = 4,
    parameter int DRAM_WORDS = 1 << 20,
    parameter int DRAM_LATENCY = 60,
    parameter int DRAM_BANKS = 8,
    parameter int DRAM_ROW_BYTES = 2048,
    parameter int DRAM_ROW_MISS = 28,
    parameter int DRAM_TURNAROUND = 4,
    parameter int DRAM_BEAT_CYCLES = 1,
    parameter int DRAM_REFRESH_CYCLES = 140,
    parameter int DRAM_REFRESH_PERIOD = 3900,
    parameter int SPM_BANKS = 1,
    parameter int SPM_BANK_ROWS = 1,
    parameter int ACC_BANKS = 1,
    parameter int ACC_BANK_ROWS = 1
) (
    input logic clk  /*verilator public_flat_rw*/,
    input logic rst  /*verilator public_flat_rw*/,

    input  logic [11:0] s_axil_awaddr  /*verilator public_flat_rw*/,
    input  logic s_axil_awvalid  /*verilator public_flat_rw*/,
    output logic s_axil_awready  /*verilator public_flat_rw*/,
    input  logic [31:0] s_axil_wdata  /*verilator public_flat_rw*/,
    input  logic [3:0] s_axil_wstrb  /*verilator public_flat_rw*/,
    input  logic s_axil_wvalid  /*verilator public_flat_rw*/,
    output logic s_axil_wready  /*verilator public_flat_rw*/,
    output logic [1:0] s_axil_bresp  /*verilator public_flat_rw*/,
    output logic s_axil_bvalid  /*verilator public_flat_rw*/,
    input  logic s_axil_bready  /*verilator public_flat_rw*/,
    input  logic [11:0] s_axil_araddr  /*verilator public_flat_rw*/,
    input  logic s_axil_arvalid  /*verilator public_flat_rw*/,
    output logic s_axil_arready  /*verilator public_flat_rw*/,
    output logic [31:0] s_axil_rdata  /*verilator public_flat_rw*/,
    output logic [1:0] s_axil_rresp  /*verilator public_flat_rw*/,
    output logic s_axil_rvalid  /*verilator public_flat_rw*/,
    input  logic s_axil_rready  /*verilator public_flat_rw*/,

    output logic irq  /*verilator public_flat_rw*/,

    // 1: file to DRAM, 2: DRAM to file, 3: fill DRAM, 4: close the log (see dram.sv)
    input logic [2:0] host_op  /*verilator public_flat_rw*/,
    input logic [31:0] host_word  /*verilator public_flat_rw*/,
    input logic [31:0] host_count  /*verilator public_flat_rw*/,
    input logic [31:0] host_fill  /*verilator public_flat_rw*/,
    input logic bus_rst  /*verilator public_flat_rw*/,  // resets the DRAM alone
    input logic [7:0] stall  /*verilator public_flat_rw*/,
    input logic [4:0] stall_channels  /*verilator public_flat_rw*/,
    input logic [1:0] order  /*verilator public_flat_rw*/,
    input logic error_enable  /*verilator public_flat_rw*/,
    input logic error_beat  /*verilator public_flat_rw*/,
    input logic [31:0] error_word  /*verilator public_flat_rw*/,

    output logic [15:0] protocol_error  /*verilator public_flat_rw*/  // sticky until reset
);
  logic [ADDRESS_BITS-1:0] araddr, awaddr;
  logic [7:0] arlen, awlen;
  logic [2:0] arsize, awsize;
  logic [1:0] arburst, awburst, rresp, bresp;
  logic [BUS_BYTES*8-1:0] rdata, wdata;
  logic [BUS_BYTES-1:0] wstrb;
  logic arvalid, arready, rvalid, rready, rlast, awvalid, awready, wvalid, wready, wlast, bvalid, bready;
  // Registered: every register's next value depends on the reset, and the simulator would evaluate
  // all that depends on an input a second time each clock edge.
  logic reset, bus_reset;
  always @(posedge clk) begin
    reset <= rst;
    bus_reset <= rst || bus_rst;
  end

  logic trace_start;
  logic [4:0] trace_issue, trace_finish;
  longint unsigned cycle;
  logic [7:0] queue_error;

  /* verilator lint_off PINMISSING */
  gemmule device (
      .clk, .rst(reset), .irq, .trace_start, .trace_issue, .trace_finish,
      .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid,
      .s_axil_wready, .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid,
      .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
      .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst),
      .m_axi_arvalid(arvalid), .m_axi_arready(arready), .m_axi_rid('0), .m_axi_rdata(rdata),
      .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
      .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst),
      .m_axi_awvalid(awvalid), .m_axi_awready(awready), .m_axi_wdata(wdata), .m_axi_wstrb(wstrb),
      .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready), .m_axi_bid('0),
      .m_axi_bresp(bresp), .m_axi_bvalid(bvalid), .m_axi_bready(bready)
  );
  /* verilator lint_on PINMISSING */

  gemmule_dram #(
      .ADDRESS_BITS(ADDRESS_BITS), .BUS_BYTES(BUS_BYTES), .WORDS(DRAM_WORDS), .LATENCY(DRAM_LATENCY),
      .BANKS(DRAM_BANKS), .ROW_BYTES(DRAM_ROW_BYTES), .ROW_MISS(DRAM_ROW_MISS),
      .TURNAROUND(DRAM_TURNAROUND), .BEAT_CYCLES(DRAM_BEAT_CYCLES),
      .REFRESH_CYCLES(DRAM_REFRESH_CYCLES), .REFRESH_PERIOD(DRAM_REFRESH_PERIOD)
  ) dram (
      .clk, .rst(bus_reset), .restart(trace_start), .host_op, .host_word, .host_count, .host_fill, .stall,
      .stall_channels, .order, .error_enable, .error_beat, .error_word, .cycle, .queue_error,
      .araddr, .arlen, .arvalid, .arready, .rdata, .rresp, .rlast, .rvalid, .rready,
      .awaddr, .awlen, .awvalid, .awready, .wdata, .wstrb, .wlast, .wvalid, .wready,
      .bresp, .bvalid, .bready
  );

  // Event log.
  string folder;
  int log_file = 0;
  initial if (!$value$plusargs("dir=%s", folder)) folder = ".";

  always @(posedge clk) begin
    if (log_file != 0 && (trace_start || host_op == 4)) begin
      $fclose(log_file);
      log_file = 0;
    end
    if (trace_start) log_file = $fopen({folder, "/log.bin"}, "wb");
    if (log_file != 0 && |{trace_issue, trace_finish})
      $fwrite(log_file, "%u%u", cycle[31:0], {22'b0, trace_finish, trace_issue});
  end

  // AXI rules, as sticky bits 8..13 (0..7: the DRAM's queues), and the rule of claims, 14.
  localparam int CROSSES_4K = 8, SHAPE = 9, UNSTABLE = 10, R_LOST = 11, B_LOST = 12, ROW_CROSSED = 13;
  logic [5:0] rules;
  logic foreign;
  assign protocol_error = {1'b0, foreign, rules, queue_error};

`ifdef CLAIMS
  gemmule_claims_check #(
      .SPM_BANKS(SPM_BANKS), .SPM_BANK_ROWS(SPM_BANK_ROWS), .ACC_BANKS(ACC_BANKS), .ACC_BANK_ROWS(ACC_BANK_ROWS)
  ) claims_check (.clk, .rst(reset), .foreign);
`else
  assign foreign = 0;  // a stand-in for the device
`endif

  function automatic logic crosses(input logic [ADDRESS_BITS-1:0] address, input logic [7:0] len,
                                   input int limit);
    return (int'(address % ADDRESS_BITS'(limit)) + (int'(len) + 1) * BUS_BYTES) > limit;
  endfunction

  logic ar_waits, aw_waits, w_waits;
  logic [ADDRESS_BITS+7:0] ar_held, aw_held;
  logic [BUS_BYTES*9:0] w_held;

  always @(posedge clk) begin
    if (arvalid && crosses(araddr, arlen, 4096)) rules[CROSSES_4K-8] <= 1;
    if (awvalid && crosses(awaddr, awlen, 4096)) rules[CROSSES_4K-8] <= 1;
    if (arvalid && crosses(araddr, arlen, DRAM_ROW_BYTES)) rules[ROW_CROSSED-8] <= 1;
    if (awvalid && crosses(awaddr, awlen, DRAM_ROW_BYTES)) rules[ROW_CROSSED-8] <= 1;
    if (arvalid && (arsize != 3'($clog2(BUS_BYTES)) || arburst != 1)) rules[SHAPE-8] <= 1;
    if (awvalid && (awsize != 3'($clog2(BUS_BYTES)) || awburst != 1)) rules[SHAPE-8] <= 1;
    if (rvalid && !rready) rules[R_LOST-8] <= 1;
    if (bvalid && !bready) rules[B_LOST-8] <= 1;
    // Offered and not taken: must stand unchanged in the next cycle.
    if (ar_waits && !(arvalid && {araddr, arlen} == ar_held)) rules[UNSTABLE-8] <= 1;
    if (aw_waits && !(awvalid && {awaddr, awlen} == aw_held)) rules[UNSTABLE-8] <= 1;
    if (w_waits && !(wvalid && {wlast, wstrb, wdata} == w_held)) rules[UNSTABLE-8] <= 1;
    ar_waits <= arvalid && !arready;
    aw_waits <= awvalid && !awready;
    w_waits <= wvalid && !wready;
    ar_held <= {araddr, arlen};
    aw_held <= {awaddr, awlen};
    w_held <= {wlast, wstrb, wdata};
    if (reset) begin
      rules <= 0;
      {ar_waits, aw_waits, w_waits} <= 0;
    end
  end
endmodule
