/* SPDX-License-Identifier: Apache-2.0
 *
 * Boot: stack, interrupts of the device, zeroed memory, then main. The core begins at address 0.
 */
    .section .start, "ax"
    .globl _start
_start:
    la sp, _stack
    la t0, trap
    csrw mtvec, t0
    la t0, _bss
    la t1, _end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
3:  j 3b

/* The device's interrupt is a level: it is masked here, noted, and lowered by the driver. */
    .balign 4
trap:
    addi sp, sp, -8
    sw t0, 0(sp)
    sw t1, 4(sp)
    li t0, 0x800 /* machine external interrupt */
    csrc mie, t0
    la t0, interrupts
    lw t1, 0(t0)
    addi t1, t1, 1
    sw t1, 0(t0)
    lw t0, 0(sp)
    lw t1, 4(sp)
    addi sp, sp, 8
    mret
