// Stands in for the generated top in tests of the testbench. A start plays script.bin (folder +dir=):
// records of four 32-bit words, highest byte first: earliest cycle, kind (0 read, 1 write, 2 end), byte
// address, beats. Reads are unit 0 of the trace (issue: address accepted, finish: last beat), writes
// unit 1 (issue: last beat accepted, finish: response). Word i of a write burst at address a is a + i.
// FAULT_INDEX reads the sum over all read words, CYCLES_HI the number of error responses.
module gemmule (
    input logic clk, input logic rst,
    input logic [11:0] s_axil_awaddr, input logic s_axil_awvalid, output logic s_axil_awready,
    input logic [31:0] s_axil_wdata, input logic [3:0] s_axil_wstrb, input logic s_axil_wvalid,
    output logic s_axil_wready, output logic [1:0] s_axil_bresp, output logic s_axil_bvalid,
    input logic s_axil_bready, input logic [11:0] s_axil_araddr, input logic s_axil_arvalid,
    output logic s_axil_arready, output logic [31:0] s_axil_rdata, output logic [1:0] s_axil_rresp,
    output logic s_axil_rvalid, input logic s_axil_rready,
    output logic [31:0] m_axi_araddr, output logic [7:0] m_axi_arlen, output logic [2:0] m_axi_arsize,
    output logic [1:0] m_axi_arburst, output logic m_axi_arvalid, input logic m_axi_arready,
    input logic m_axi_rid, input logic [31:0] m_axi_rdata, input logic [1:0] m_axi_rresp,
    input logic m_axi_rlast, input logic m_axi_rvalid, output logic m_axi_rready,
    output logic [31:0] m_axi_awaddr, output logic [7:0] m_axi_awlen, output logic [2:0] m_axi_awsize,
    output logic [1:0] m_axi_awburst, output logic m_axi_awvalid, input logic m_axi_awready,
    output logic [31:0] m_axi_wdata, output logic [3:0] m_axi_wstrb, output logic m_axi_wlast,
    output logic m_axi_wvalid, input logic m_axi_wready, input logic m_axi_bid,
    input logic [1:0] m_axi_bresp, input logic m_axi_bvalid, output logic m_axi_bready,
    output logic irq, output logic trace_start, output logic [4:0] trace_issue, output logic [4:0] trace_finish
);
  logic [31:0] script[4096*4], sum, errors, cycles, count, now;
  int file, unused, at, beat, open;
  logic running;
  string folder;
  initial if (!$value$plusargs("dir=%s", folder)) folder = ".";

  // Registers: address and data are taken together; reads answer one cycle later.
  wire write = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid;
  assign s_axil_awready = write, s_axil_wready = write, s_axil_bresp = 0, s_axil_rresp = 0;
  assign s_axil_arready = !s_axil_rvalid;
  always @(posedge clk) begin
    s_axil_bvalid <= write;
    if (s_axil_arready && s_axil_arvalid) begin
      s_axil_rvalid <= 1;
      case (s_axil_araddr)
        12'h008: s_axil_rdata <= sum;
        12'h00C: s_axil_rdata <= cycles;
        12'h010: s_axil_rdata <= errors;
        default: s_axil_rdata <= 0;
      endcase
    end else s_axil_rvalid <= 0;
    if (rst) {s_axil_bvalid, s_axil_rvalid} <= 0;
  end
  assign trace_start = write && s_axil_awaddr == 0 && s_axil_wdata[0];
  assign now = trace_start ? 0 : count;

  assign m_axi_arsize = 2, m_axi_awsize = 2, m_axi_arburst = 1, m_axi_awburst = 1;
  assign m_axi_rready = 1, m_axi_bready = 1, m_axi_wstrb = '1;
  wire read_taken = m_axi_arvalid && m_axi_arready;
  wire write_done = m_axi_wvalid && m_axi_wready && m_axi_wlast;
  assign trace_issue = {3'b0, write_done, read_taken};
  assign trace_finish = {3'b0, m_axi_bvalid, m_axi_rvalid && m_axi_rlast};

  wire [31:0] kind = script[at*4+1], address = script[at*4+2], beats = script[at*4+3];
  always @(posedge clk) begin
    count <= now + 1;
    if (s_axil_awvalid && s_axil_awaddr == 12'h020) irq <= 0;
    if (m_axi_rvalid) begin
      sum = sum + m_axi_rdata;
      errors = errors + 32'(m_axi_rresp != 0);
    end
    if (m_axi_bvalid) errors = errors + 32'(m_axi_bresp != 0);
    open = open + 32'(read_taken) + 32'(m_axi_awvalid && m_axi_awready)
        - 32'(m_axi_rvalid && m_axi_rlast) - 32'(m_axi_bvalid);
    // Reads and writes of the script are played in order; a write's beats follow without gaps.
    if (m_axi_arvalid && m_axi_arready) m_axi_arvalid <= 0;
    if (m_axi_awvalid && m_axi_awready) m_axi_awvalid <= 0;
    if (m_axi_wvalid && m_axi_wready) begin
      beat = beat + 1;
      m_axi_wvalid <= !m_axi_wlast;
      m_axi_wdata <= m_axi_wdata + 1;
      m_axi_wlast <= beat + 1 == int'(m_axi_awlen) + 1;
    end
    if (running && now + 1 >= script[at*4] && (!m_axi_arvalid || m_axi_arready)
        && (!m_axi_wvalid || (m_axi_wready && m_axi_wlast)) && (!m_axi_awvalid || m_axi_awready)) begin
      if (kind == 0) begin
        m_axi_arvalid <= 1;
        m_axi_araddr <= address;
        m_axi_arlen <= 8'(beats - 1);
      end else if (kind == 1) begin
        m_axi_awvalid <= 1;
        m_axi_awaddr <= address;
        m_axi_awlen <= 8'(beats - 1);
        m_axi_wvalid <= 1;
        m_axi_wdata <= address;
        m_axi_wlast <= beats == 1;
        beat = 0;
      end else if (kind == 2 && open == 0) begin
        running <= 0;
        cycles <= now + 1;
        irq <= 1;
      end
      if (kind != 2) at = at + 1;
    end
    if (trace_start) begin
      file = $fopen({folder, "/script.bin"}, "rb");
      unused = $fread(script, file);
      $fclose(file);
      running <= 1;
      {at, open, sum, errors} = 0;
    end
    if (rst) {running, irq, m_axi_arvalid, m_axi_awvalid, m_axi_wvalid} <= 0;
  end
endmodule
