//! The machine code that NVRTC makes of the kernels: what no emulator shows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use lumos_kernels::DType;
use regex::Regex;

use crate::cuda::kernels::KERNELS;

/// Registers of a multiprocessor, for all threads of its blocks.
const REGISTERS: usize = 65_536;

/// The disassembler, in the folder that `LUMOS_NVRTC` names or on the path.
pub(in crate::cuda) fn disassembler() -> Option<PathBuf> {
    let folder = std::env::var_os("LUMOS_NVRTC").filter(|folder| !folder.is_empty());
    let named = folder.map(|folder| Path::new(&folder).join("nvdisasm")).filter(|file| file.is_file());
    named.or_else(|| lumos_capabilities::on_path("nvdisasm"))
}

/// The instructions of each kernel, such as `LDG.E.128.CONSTANT`, in order, and the number of its registers.
fn disassembled(disassembler: &Path, code: &[u8]) -> BTreeMap<String, (Vec<String>, usize)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernels.cubin");
    std::fs::write(&file, code).unwrap();
    let output = Command::new(disassembler).arg("-c").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let section = Regex::new(r"^\.text\.(\w+):").unwrap();
    let instruction = Regex::new(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)").unwrap();
    let register = Regex::new(r"\bR(\d+)\b").unwrap();
    let mut kernels = BTreeMap::<String, (Vec<String>, usize)>::new();
    let mut current = String::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(found) = section.captures(line) {
            found[1].clone_into(&mut current);
        }
        let Some(found) = instruction.captures(line) else { continue };
        let (instructions, registers) = kernels.entry(current.clone()).or_default();
        instructions.push(found[1].to_owned());
        for found in register.captures_iter(line) {
            *registers = (*registers).max(found[1].parse::<usize>().unwrap() + 1);
        }
    }
    kernels
}

/// Threads per block at which a kernel is launched, at most.
fn threads(kernel: &str) -> usize {
    match kernel {
        "choose" => 1024,
        "rms_norm" => 512,
        "embed" | "gated" | "join_parts" => 256,
        _ => 128,
    }
}

/// Checks the machine code of all kernels: nothing spilled to memory, registers for the threads of a block, wide loads, and
/// attention of 16-bit types on tensor cores.
pub(in crate::cuda) fn check(disassembler: &Path, code: &[u8], capability: (i32, i32), dtype: DType) {
    let kernels = disassembled(disassembler, code);
    for kernel in KERNELS {
        let (instructions, registers) =
            kernels.get(kernel).unwrap_or_else(|| panic!("{kernel} has no machine code"));
        let case = format!("{kernel} of {dtype} for {capability:?}");
        let count = |start: &str| instructions.iter().filter(|one| one.starts_with(start)).count();
        let before = |start: &str, ends: &[&str]| {
            let is_end = |one: &String| ends.iter().any(|end| one.starts_with(end));
            let until =
                instructions.iter().position(is_end).unwrap_or_else(|| panic!("{case} has no {ends:?}"));
            instructions[..until].iter().filter(|one| one.starts_with(start)).count()
        };
        assert_eq!(count("STL") + count("LDL"), 0, "{case} keeps numbers in local memory");
        // Registers are given to a warp in units of 256.
        let given = registers.next_multiple_of(8) * threads(kernel);
        assert!(*registers > 4 && given <= REGISTERS, "{case} needs {registers} registers");
        match kernel {
            _ if kernel.starts_with("attention_") => {
                let is_many = kernel.contains("many");
                assert!(is_many || *registers <= 144, "{case}: {registers} registers");
                let head = kernel.rsplit('_').next().unwrap().parse::<usize>().unwrap();
                let narrow = ["LDG.E.U16", "LDG.E.U8", "LDG.E.64"].map(count);
                assert_eq!(narrow, [0; 3], "{case} copies few bytes at a time");
                // All loads of a tile are started before its first number is stored, or used.
                let loads = head * dtype.width() * 32 / (128 * 16);
                if dtype == DType::F32 {
                    assert!(before("LDG.E.128", &["STS.128"]) >= loads, "{case}: loads wait for each other");
                } else {
                    let started = before("LDGSTS.E.BYPASS.128", &["LDGDEPBAR", "DEPBAR"]);
                    assert!(started >= loads, "{case}: copies wait for each other: {started}");
                }
                // The next loads are started before the arithmetic on a tile: of its values, and with 16 bits of the next tile.
                let position = |start: &str| instructions.iter().position(|one| one.starts_with(start));
                let ahead = if dtype == DType::F32 {
                    let tile = position("STS.128").unwrap()..position("SHFL").unwrap();
                    instructions[tile].iter().filter(|one| one.starts_with("LDG.E.128")).count()
                } else {
                    before("LDGSTS.E.BYPASS.128", &["HMMA"]) / 4
                };
                assert!(
                    ahead >= loads,
                    "{case}: the arithmetic waits for the next loads: {ahead} of {loads}"
                );
                // Products of scores (head / 16) and of outputs (head / 4 / 8 columns, 2 steps); of 64 queries four times as many.
                let tensor_cores = if is_many { head / 8 + head / 2 } else { head / 8 };
                let tensor_cores = if dtype == DType::F32 { 0 } else { tensor_cores };
                assert_eq!(count("HMMA.16816.F32"), tensor_cores, "{case}");
            }
            "rms_norm" => {
                // Eight before the sum of squares, for which threads wait, and four weights after it.
                assert!(before("LDG.E.128", &["BAR.SYNC"]) >= 8 && count("LDG.E.128") >= 12, "{case}");
                assert!(before("LDG.E.128", &["STG.E"]) >= 8, "{case}: loads wait for each other");
            }
            "rotate_store" => {
                let loads = before("LDG.E.128", &["STG.E.64", "STG.E.128"]);
                assert!(loads >= 4, "{case}: loads wait for each other");
            }
            "product" => {
                let wide = if dtype == DType::F32 { "LDG.E.128" } else { "LDG.E.64" };
                // Eight rows of weights and eight of the input.
                assert!(count(wide) >= 16, "{case}: {} loads", count(wide));
            }
            _ => {}
        }
    }
}
