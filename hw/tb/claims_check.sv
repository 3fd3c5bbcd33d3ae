// Whether every access of a stream lies in a bank whose port that stream holds (docs/timing.md, section Claims).
//
// It looks into the device, at the memories' stream ports and at what the claims block holds in the same cycle. The
// macros CLAIMS, SCRATCHPAD and ACCUMULATOR name these blocks by their path below the device; gemmule.sim.rtl.device
// finds the paths in the Verilog. Parts of a stream's held bits are in the order of hw/command/claims.py.

`ifdef CLAIMS
module gemmule_claims_check #(
    parameter int SPM_BANKS = 1,
    parameter int SPM_BANK_ROWS = 1,
    parameter int ACC_BANKS = 1,
    parameter int ACC_BANK_ROWS = 1
) (
    input logic clk,
    input logic rst,
    output logic foreign  // sticky: an access to a bank whose port its stream does not hold
);
  function automatic logic spm(input logic en, input logic [15:0] row, input logic [SPM_BANKS-1:0] held);
    return en && !(|((held >> (row >> $clog2(SPM_BANK_ROWS))) & SPM_BANKS'(1)));
  endfunction

  function automatic logic acc(input logic en, input logic [15:0] row, input logic [ACC_BANKS-1:0] held);
    return en && !(|((held >> (row >> $clog2(ACC_BANK_ROWS))) & ACC_BANKS'(1)));
  endfunction

  always @(posedge clk) begin
    // Scratchpad reads.
    if (spm(`SCRATCHPAD.store_r__en, `SCRATCHPAD.store_r__row, `CLAIMS.store_r.held[0+:SPM_BANKS])
        || spm(`SCRATCHPAD.matrix_a__en, `SCRATCHPAD.matrix_a__row, `CLAIMS.matrix_A.held)
        || spm(`SCRATCHPAD.matrix_b__en, `SCRATCHPAD.matrix_b__row, `CLAIMS.matrix_B.held)
        || spm(`SCRATCHPAD.vector_r0__en, `SCRATCHPAD.vector_r0__row, `CLAIMS.vector_r0.held[0+:SPM_BANKS])
        || spm(`SCRATCHPAD.vector_r1__en, `SCRATCHPAD.vector_r1__row, `CLAIMS.vector_r1.held)
        || spm(`SCRATCHPAD.select_r__en, `SCRATCHPAD.select_r__row, `CLAIMS.select_r.held))
      foreign <= 1;
    // Scratchpad writes.
    if (spm(`SCRATCHPAD.load_w__en, `SCRATCHPAD.load_w__row, `CLAIMS.load_w.held[0+:SPM_BANKS])
        || spm(`SCRATCHPAD.vector_w__en, `SCRATCHPAD.vector_w__row, `CLAIMS.vector_w.held[0+:SPM_BANKS])
        || spm(`SCRATCHPAD.select_w__en, `SCRATCHPAD.select_w__row, `CLAIMS.select_w.held))
      foreign <= 1;
    // Accumulator reads.
    if (acc(`ACCUMULATOR.store_r__en, `ACCUMULATOR.store_r__row, `CLAIMS.store_r.held[SPM_BANKS+:ACC_BANKS])
        || acc(`ACCUMULATOR.load_r__en, `ACCUMULATOR.load_r__row, `CLAIMS.load_w.held[SPM_BANKS+:ACC_BANKS])
        || acc(`ACCUMULATOR.matrix_read__en, `ACCUMULATOR.matrix_read__row, `CLAIMS.matrix_C.held)
        || acc(`ACCUMULATOR.vector_r0__en, `ACCUMULATOR.vector_r0__row, `CLAIMS.vector_r0.held[SPM_BANKS+:ACC_BANKS]))
      foreign <= 1;
    // Accumulator writes.
    if (acc(`ACCUMULATOR.load_w__en, `ACCUMULATOR.load_w__row, `CLAIMS.load_w.held[SPM_BANKS+ACC_BANKS+:ACC_BANKS])
        || acc(`ACCUMULATOR.matrix_write__en, `ACCUMULATOR.matrix_write__row, `CLAIMS.matrix_C.held)
        || acc(`ACCUMULATOR.vector_w__en, `ACCUMULATOR.vector_w__row, `CLAIMS.vector_w.held[SPM_BANKS+:ACC_BANKS]))
      foreign <= 1;
    if (rst) foreign <= 0;
  end
endmodule
`endif
