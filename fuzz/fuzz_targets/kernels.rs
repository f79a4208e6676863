//! Compares vector kernels with the scalar ones, for arbitrary bits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_engine::fuzzing::{MatrixProduct, kernels};

fuzz_target!(|input: (u8, u8, u8, u8, &[u8])| {
    let (rows, inputs, outputs, format, bits) = input;
    if bits.is_empty() {
        return;
    }
    kernels(&MatrixProduct {
        rows: 1 + usize::from(rows) % 40,
        // For block formats, the number of blocks of 256.
        inputs: if format % 6 < 3 { 1 + 3 * usize::from(inputs) } else { 1 + usize::from(inputs) % 3 },
        outputs: 1 + usize::from(outputs) % 70,
        format,
        bits,
    });
});
