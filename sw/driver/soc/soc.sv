// A small system: a RISC-V core with a Wishbone bus, boot memory, a UART and a Gemmule device.
//
//   0x0000_0000  RAM, 64 KiB, from the file +firmware= (32-bit words in hexadecimal)
//   0x1000_0000  registers of the device, over a bridge to AXI4-Lite
//   0x2000_0000  UART: a write sends a byte, a read tells whether it is busy; 0x2000_0004: a write ends the simulation
//   0x4000_0000  flash, and 0x8000_0000 DRAM: over the port mem_*, which answers in the next cycle
//
// The device's DRAM port leaves the system unchanged; the core reaches the same memory through its own port, so that its
// accesses do not disturb the device's. The device's interrupt is the core's.

module soc #(
    parameter int DIVIDER = 4,  // cycles of a bit on the UART
    parameter int RAM_WORDS = 1 << 14,
    parameter int ADDRESS_BITS = 32,
    parameter int BUS_BYTES = 4
) (
    input logic clk,
    input logic rst,

    output logic uart_tx,
    output logic ended,
    output logic [31:0] status,

    output logic mem_valid,
    output logic mem_write,
    output logic [31:0] mem_address,
    output logic [31:0] mem_wdata,
    output logic [3:0] mem_sel,
    input logic [31:0] mem_rdata,

    output logic trace_start,
    output logic [ADDRESS_BITS-1:0] m_axi_araddr, m_axi_awaddr,
    output logic [7:0] m_axi_arlen, m_axi_awlen,
    output logic m_axi_arvalid, m_axi_rready, m_axi_awvalid, m_axi_wvalid, m_axi_wlast, m_axi_bready,
    output logic [8*BUS_BYTES-1:0] m_axi_wdata,
    output logic [BUS_BYTES-1:0] m_axi_wstrb,
    input logic m_axi_arready, m_axi_rvalid, m_axi_rlast, m_axi_awready, m_axi_wready, m_axi_bvalid,
    input logic m_axi_rid, m_axi_bid,
    input logic [8*BUS_BYTES-1:0] m_axi_rdata,
    input logic [1:0] m_axi_rresp, m_axi_bresp
);
  // The core's bus.
  logic [29:0] adr;
  logic [31:0] dat_w, dat_r;
  logic [3:0] sel;
  logic cyc, stb, we, ack, irq;

  sentinel core (
      .clk, .rst, .irq, .bus__adr(adr), .bus__dat_w(dat_w), .bus__dat_r(dat_r), .bus__sel(sel), .bus__cyc(cyc),
      .bus__stb(stb), .bus__we(we), .bus__ack(ack)
  );

  logic request, in_ram, in_device, in_uart, in_memory;
  assign request = cyc && stb && !ack;
  assign in_ram = adr[29:26] == 4'h0;
  assign in_device = adr[29:26] == 4'h1;
  assign in_uart = adr[29:26] == 4'h2;
  assign in_memory = adr[29] || adr[29:26] == 4'h4;

  // RAM.
  logic [31:0] ram[RAM_WORDS];
  logic [31:0] ram_data;
  string firmware;
  initial if ($value$plusargs("firmware=%s", firmware)) $readmemh(firmware, ram);
  always @(posedge clk) begin
    ram_data <= ram[adr[$clog2(RAM_WORDS)-1:0]];
    if (request && in_ram && we)
      for (int i = 0; i < 4; i++) if (sel[i]) ram[adr[$clog2(RAM_WORDS)-1:0]][8*i+:8] <= dat_w[8*i+:8];
  end

  // Flash and DRAM.
  assign mem_valid = request && in_memory;
  assign mem_write = we;
  assign mem_address = {adr, 2'b00};
  assign mem_wdata = dat_w;
  assign mem_sel = sel;

  // UART: a start bit, eight bits, a stop bit.
  logic [9:0] shifted;
  logic [3:0] bits;
  logic [15:0] wait_cycles;
  assign uart_tx = bits == 0 || shifted[0];
  always @(posedge clk) begin
    ended <= 0;
    if (bits != 0) begin
      wait_cycles <= wait_cycles - 1;
      if (wait_cycles == 0) begin
        wait_cycles <= 16'(DIVIDER - 1);
        shifted <= {1'b1, shifted[9:1]};
        bits <= bits - 1;
      end
    end else if (request && in_uart && we && !adr[0]) begin
      shifted <= {1'b1, dat_w[7:0], 1'b0};
      bits <= 10;
      wait_cycles <= 16'(DIVIDER - 1);
    end
    if (request && in_uart && we && adr[0]) begin
      ended <= 1;
      status <= dat_w;
    end
    if (rst) bits <= 0;
  end

  // Registers: each side of a request is offered until it is taken, then the answer is awaited.
  logic offered, aw_offered, w_offered, ar_offered, awready, wready, arready, bvalid, rvalid;
  logic [31:0] rdata;
  always @(posedge clk) begin
    if (request && in_device && !offered) begin
      offered <= 1;
      aw_offered <= we;
      w_offered <= we;
      ar_offered <= !we;
    end
    if (aw_offered && awready) aw_offered <= 0;
    if (w_offered && wready) w_offered <= 0;
    if (ar_offered && arready) ar_offered <= 0;
    if (bvalid || rvalid) offered <= 0;
    if (rst) {offered, aw_offered, w_offered, ar_offered} <= 0;
  end

  // Answers, a cycle behind the request or with the device's.
  logic [1:0] source;
  logic [31:0] device_data;
  always @(posedge clk) begin
    ack <= request && (in_device ? offered && (bvalid || rvalid) : 1'b1);
    source <= in_ram ? 0 : in_device ? 1 : in_uart ? 2 : 3;
    device_data <= rdata;
    if (rst) ack <= 0;
  end
  assign dat_r = source == 0 ? ram_data : source == 1 ? device_data : source == 2 ? 32'(bits != 0) : mem_rdata;

  /* verilator lint_off PINMISSING */
  gemmule device (
      .clk, .rst, .irq, .trace_start,
      .s_axil_awaddr({adr[9:0], 2'b00}), .s_axil_awvalid(aw_offered), .s_axil_awready(awready),
      .s_axil_wdata(dat_w), .s_axil_wstrb(sel), .s_axil_wvalid(w_offered), .s_axil_wready(wready),
      .s_axil_bvalid(bvalid), .s_axil_bready(1'b1), .s_axil_araddr({adr[9:0], 2'b00}),
      .s_axil_arvalid(ar_offered), .s_axil_arready(arready), .s_axil_rdata(rdata), .s_axil_rvalid(rvalid),
      .s_axil_rready(1'b1),
      .m_axi_araddr, .m_axi_arlen, .m_axi_arvalid, .m_axi_arready, .m_axi_rid, .m_axi_rdata, .m_axi_rresp,
      .m_axi_rlast, .m_axi_rvalid, .m_axi_rready, .m_axi_awaddr, .m_axi_awlen, .m_axi_awvalid, .m_axi_awready,
      .m_axi_wdata, .m_axi_wstrb, .m_axi_wlast, .m_axi_wvalid, .m_axi_wready, .m_axi_bid, .m_axi_bresp,
      .m_axi_bvalid, .m_axi_bready
  );
  /* verilator lint_on PINMISSING */
endmodule
