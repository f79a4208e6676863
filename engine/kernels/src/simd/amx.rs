//! Advanced matrix extensions: tiles of 16 rows × 32 bfloat16, multiplied into tiles of 16 × 16 float32.
//!
//! Stable Rust has no intrinsics for them, so every instruction is one line of assembly. The compiler never
//! uses the tile registers itself; they keep their contents from one line to the next.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

use super::path::AMX_ROWS;
use super::tile::prefetch_next;
use super::x86::Avx512;
use super::{LINE, PANEL, Unit};

/// Rows of one tile.
pub(super) const TILE_ROWS: usize = AMX_ROWS;
/// Outputs of one tile.
const TILE_OUTPUTS: usize = 16;
/// Bytes of one tile row.
const ROW_BYTES: usize = 64;

/// Whether the processor has the instructions and Linux allows this process to use them. The first call
/// requests permission.
pub(super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        const AMX_BF16: u32 = 1 << 22;
        const AMX_TILE: u32 = 1 << 24;
        if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) != AMX_BF16 | AMX_TILE {
            return false;
        }
        // SAFETY: this request takes two integers and touches no memory of the process. Linux grants it to
        // all threads, including those that start later, or rejects it.
        let status = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
        status == 0
    })
}

/// The operand of LDTILECFG.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    /// No registers.
    fn new() -> Self {
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] }
    }

    /// Sets the shape of some registers.
    fn set(&mut self, registers: Range<usize>, rows: usize, row_bytes: usize) {
        assert!(registers.end <= 8 && rows <= TILE_ROWS && row_bytes <= ROW_BYTES);
        self.rows[registers.clone()].fill(rows as u8);
        self.row_bytes[registers].fill(row_bytes as u16);
    }
}

/// Configures this thread's registers. Panics if they are not [`available`].
fn configure(configuration: &Configuration) {
    assert!(available());
    // SAFETY: the instruction reads the 64 bytes of a valid configuration.
    unsafe {
        asm!(
            "ldtilecfg [{}]", in(reg) configuration,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// Releases this thread's registers, which are configured, so that context switches do not save them.
fn release() {
    // SAFETY: registers are only configured on processors with the instructions.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
}

thread_local! {
    /// Number of guards on this thread.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
}

/// This thread's tile registers, all of 16 rows × 64 bytes: 0 and 1 are sums of the upper rows, 2 and 3 of
/// the lower rows, 4 and 5 activations of the upper and lower rows, 6 and 7 weights. Dropping the last guard
/// of a thread releases them.
pub(super) struct Tiles {
    /// A guard belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Tiles {
    /// Configures the registers. Panics if they are not [`available`].
    pub(super) fn new() -> Self {
        if GUARDS.replace(GUARDS.get() + 1) == 0 {
            let mut configuration = Configuration::new();
            configuration.set(0..8, TILE_ROWS, ROW_BYTES);
            configure(&configuration);
        }
        Self { thread: PhantomData }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        if GUARDS.replace(GUARDS.get() - 1) == 1 {
            release();
        }
    }
}

/// Loads the rows of a tile, `stride` bytes apart.
macro_rules! load {
    ($tile:literal, $pointer:expr, $stride:expr) => {
        asm!(
            concat!("tileloadd tmm", $tile, ", [{pointer} + {stride}*1]"),
            pointer = in(reg) $pointer, stride = in(reg) $stride,
            options(nostack, preserves_flags, readonly),
        )
    };
}

/// Stores the rows of a tile, `stride` bytes apart.
macro_rules! store {
    ($tile:literal, $pointer:expr, $stride:expr) => {
        asm!(
            concat!("tilestored [{pointer} + {stride}*1], tmm", $tile),
            pointer = in(reg) $pointer, stride = in(reg) $stride,
            options(nostack, preserves_flags),
        )
    };
}

/// Sets a tile to zeros.
macro_rules! zero {
    ($tile:literal) => {
        asm!(concat!("tilezero tmm", $tile), options(nostack, preserves_flags, nomem))
    };
}

/// Adds activations times weights to sums.
macro_rules! multiply {
    ($sums:literal, $activations:literal, $weights:literal) => {
        asm!(
            concat!("tdpbf16ps tmm", $sums, ", tmm", $activations, ", tmm", $weights),
            options(nostack, preserves_flags, nomem)
        )
    };
}

mod attention;

pub(super) use attention::AttentionRegisters;

impl Tiles {
    /// Multiplies one panel with all rows, 32 rows at a time.
    ///
    /// # Safety
    /// See [`run`](super::tile::run) for the lengths; every block has [`TILE_ROWS`] rows, the last one padded.
    pub(super) unsafe fn multiply(&self, mut unit: Unit<'_>, row_lines: usize) {
        let rows = unit.output.rows();
        for first in (0..rows).step_by(2 * TILE_ROWS) {
            // SAFETY: the caller's promise; there is a second block if more rows remain than one block has.
            unsafe {
                if rows - first > TILE_ROWS {
                    self.block::<true>(&mut unit, row_lines, first);
                } else {
                    self.block::<false>(&mut unit, row_lines, first);
                }
            }
        }
    }

    /// Multiplies tiles of zeros into four tiles of sums, `rounds` times. Returns the number of operations.
    pub(super) fn multiply_in_registers(&self, rounds: usize) -> u64 {
        const SUMS: usize = 4;
        // SAFETY: the guard has configured the tiles, and these instructions use nothing else.
        unsafe {
            zero!(0);
            zero!(1);
            zero!(2);
            zero!(3);
            zero!(4);
            zero!(5);
            zero!(6);
            zero!(7);
            for _ in 0..rounds {
                multiply!(0, 4, 6);
                multiply!(1, 4, 7);
                multiply!(2, 5, 6);
                multiply!(3, 5, 7);
            }
        }
        (rounds * SUMS * TILE_ROWS * TILE_OUTPUTS * 2 * LINE * 2) as u64
    }

    /// Multiplies one block of rows starting with `first` or, if `BOTH`, two.
    ///
    /// # Safety
    /// As for [`Self::multiply`]; the unit has that many blocks.
    #[inline(always)]
    unsafe fn block<const BOTH: bool>(&self, unit: &mut Unit<'_>, row_lines: usize, first: usize) {
        let all = if BOTH { 2 * TILE_ROWS } else { TILE_ROWS };
        let (width, rows) = (unit.output.width(), all.min(unit.output.rows() - first));
        let (whole, add) = (width == PANEL && rows == all, unit.first_line > 0);
        let mut copy: Option<[f32; 2 * TILE_ROWS * PANEL]> = None;
        let (output, stride) = unit.output.open((first, rows), whole, add, &mut copy);
        // SAFETY: the caller's promise. Tiles of weights are 16 rows of `PANEL` words, of which they take 16;
        // tiles of activations are the rows of one block, `LINE` words each, which are contiguous; tiles of
        // sums are 16 floats of as many rows of the output or of `copy`, which have `PANEL` floats each.
        unsafe {
            let output_bytes = stride * size_of::<f32>();
            let lower = output.wrapping_add(TILE_ROWS * stride);
            if add {
                load!(0, output, output_bytes);
                load!(1, output.add(TILE_OUTPUTS), output_bytes);
                if BOTH {
                    load!(2, lower, output_bytes);
                    load!(3, lower.add(TILE_OUTPUTS), output_bytes);
                }
            } else {
                zero!(0);
                zero!(1);
                if BOTH {
                    zero!(2);
                    zero!(3);
                }
            }
            let block =
                unit.activations.as_ptr().add((first * row_lines + unit.first_line * TILE_ROWS) * LINE);
            for line in 0..unit.lines {
                let weights = unit.weights.as_ptr().cast::<f32>().add(line * LINE * PANEL);
                let weight_bytes = PANEL * size_of::<f32>();
                if first == 0 {
                    prefetch_next::<Avx512>(weights.cast(), LINE * weight_bytes / ROW_BYTES);
                }
                let activations = block.add(line * TILE_ROWS * LINE);
                load!(4, activations, ROW_BYTES);
                load!(6, weights, weight_bytes);
                load!(7, weights.add(TILE_OUTPUTS), weight_bytes);
                multiply!(0, 4, 6);
                multiply!(1, 4, 7);
                if BOTH {
                    load!(5, activations.add(TILE_ROWS * row_lines * LINE), ROW_BYTES);
                    multiply!(2, 5, 6);
                    multiply!(3, 5, 7);
                }
            }
            store!(0, output, output_bytes);
            store!(1, output.add(TILE_OUTPUTS), output_bytes);
            if BOTH {
                store!(2, lower, output_bytes);
                store!(3, lower.add(TILE_OUTPUTS), output_bytes);
            }
        }
        unit.output.close((first, rows), &copy);
    }
}
