//! The product kernel: right, and the same to the bit for every number of rows. All kernels under ThreadSanitizer, with a
//! thread of the host for each thread of a block.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lumos_kernels::DType;

use super::{buffer, bytes_of, floats, rounded};
use crate::cuda::emulator::{Emulator, NO_COMPILER, compile};
use crate::cuda::kernels;
use crate::fixtures::Uniform;

/// The products of the first `rows` rows.
fn product(
    device: &Emulator,
    [weights, input]: [&[u8]; 2],
    (rows, inputs, outputs): (usize, usize, usize),
) -> Vec<f32> {
    let (weights, input) = (buffer(device, weights), buffer(device, input));
    // A value behind the last row, which stays as it is.
    let output = buffer(device, &vec![0; (rows * outputs + 1) * 4]);
    kernels::product(device, (rows, inputs, outputs), &weights, &input, (&output, 0)).unwrap();
    let mut found = floats(device, &output, rows * outputs + 1, DType::F32);
    assert_eq!(found.pop(), Some(0.0));
    found
}

#[test]
fn a_rows_products_do_not_depend_on_the_other_rows() {
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let Some(device) = Emulator::start(dtype) else { return };
        let mut random = Uniform::new(17);
        // Whole and broken groups of inputs, of outputs and of lanes.
        for (inputs, outputs) in [(4, 1), (30, 9), (128, 32), (300, 70), (513, 7), (1028, 33)] {
            let most = 21;
            let weights = random.values(outputs * inputs, 1.0);
            let input = random.values(most * inputs, 1.0);
            let (weight_bytes, input_bytes) = (bytes_of(&weights, dtype), bytes_of(&input, dtype));
            let (weights, input) = (rounded(&weights, dtype), rounded(&input, dtype));
            let of_rows = |rows: usize| {
                let bytes = &input_bytes[..rows * inputs * dtype.width()];
                product(&device, [&weight_bytes, bytes], (rows, inputs, outputs))
            };
            let all = of_rows(most);
            for (index, found) in all.iter().enumerate() {
                let (row, output) = (index / outputs, index % outputs);
                let pairs = input[row * inputs..][..inputs].iter().zip(&weights[output * inputs..][..inputs]);
                let expected: f64 = pairs.map(|(one, other)| f64::from(*one) * f64::from(*other)).sum();
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{dtype} {inputs}: {found}, {expected}");
            }
            for rows in [1, 2, 3, 4, 5, 8, 9, 16, 20] {
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(
                    bits(&of_rows(rows)),
                    bits(&all[..rows * outputs]),
                    "{dtype} {rows} {inputs} {outputs}"
                );
            }
        }
    }
}

/// The program with all kernels, unless this machine cannot compile it.
fn program() -> Option<PathBuf> {
    match compile("races", 2, &["-fsanitize=thread", "-pthread"]) {
        Ok(program) => Some(program),
        Err(reason) if reason.starts_with(NO_COMPILER) || reason.contains("tsan") => {
            lumos_capabilities::skip(lumos_capabilities::Capability::Cxx, &reason);
            None
        }
        Err(reason) => panic!("{reason}"),
    }
}

/// The output of the program, with one barrier of every thread left out; `None` if this machine cannot run it.
fn run(program: &Path, dropped: Option<u32>) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(dropped.map(|barrier| barrier.to_string()));
    let output = command.env("TSAN_OPTIONS", "exitcode=66 halt_on_error=1").output().unwrap();
    // ThreadSanitizer does not start with some layouts of the address space.
    if String::from_utf8_lossy(&output.stderr).contains("FATAL: ThreadSanitizer") {
        lumos_capabilities::skip(
            lumos_capabilities::Capability::Cxx,
            "ThreadSanitizer does not run on this machine",
        );
        return None;
    }
    Some(output)
}

#[test]
fn the_kernels_have_no_races() {
    let Some(program) = program() else { return };
    let Some(output) = run(&program, None) else { return };
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\n"[..]), "{output:?}");
    // The test sees that a barrier is missing.
    let output = run(&program, Some(3)).unwrap();
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("data race"), "{output:?}");
}
