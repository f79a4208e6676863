//! A test device: the kernels' own source, compiled for the host and run in a separate process.
//!
//! Each process runs the threads of a block in another random order. Its seed is printed, and `LUMOS_SCHEDULE` sets it for all
//! processes of a test.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lumos_kernels::DType;

use super::accelerator::{Accelerator, Argument, DeviceError, Launch, Product};

/// The sources that are compiled, placed in one folder.
const SOURCES: [(&str, &str); 8] = [
    ("emulator.cpp", include_str!("emulator/emulator.cpp")),
    ("races.cpp", include_str!("emulator/races.cpp")),
    ("threads.hpp", include_str!("emulator/threads.hpp")),
    ("intrinsics.hpp", include_str!("emulator/intrinsics.hpp")),
    ("tensor_cores.hpp", include_str!("emulator/tensor_cores.hpp")),
    ("kernels.cu", include_str!("kernels.cu")),
    ("attention.cu", include_str!("attention.cu")),
    ("sampling.cu", include_str!("sampling.cu")),
];
pub(super) const NO_COMPILER: &str = "cannot run the C++ compiler";
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// A handle to an emulated device.
pub(super) struct Emulator {
    process: Arc<Mutex<Process>>,
    sanitized: bool,
}

/// A buffer in the emulator's process.
pub(super) struct Buffer {
    id: u32,
    process: Arc<Mutex<Process>>,
}

/// Counts of the operations requested so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Kernels launched and products computed.
    pub(super) launches: usize,
    /// Recordings that were started.
    pub(super) replays: usize,
    /// Number of times the host waited for the device.
    pub(super) downloads: usize,
    /// Bytes downloaded.
    pub(super) downloaded: usize,
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    buffers: u32,
    counts: Counts,
    /// The launches that are recorded, instead of sent, and their number.
    recording: Option<(Vec<u8>, usize)>,
}

impl Emulator {
    /// Starts an emulator for weights of a type, with sanitizers if the compiler supports them. Returns `None` and
    /// prints a message if the C++ compiler is missing.
    ///
    /// The kernels access bfloat16 as they do float16, so that it has sanitizers only with `LUMOS_EMULATED`: they take
    /// two thirds of the compilation.
    pub(super) fn start(dtype: DType) -> Option<Self> {
        if dtype == DType::Bf16 && std::env::var_os("LUMOS_EMULATED").is_none() {
            return Self::unsanitized(dtype);
        }
        match program(dtype, true) {
            Ok(program) => Some(Self::run(program, true)),
            Err(_) => Self::unsanitized(dtype),
        }
    }

    /// Starts an emulator without sanitizers, for whole models: it takes a third of the time.
    pub(super) fn unsanitized(dtype: DType) -> Option<Self> {
        match program(dtype, false) {
            Ok(program) => Some(Self::run(program, false)),
            Err(reason) if reason.starts_with(NO_COMPILER) => {
                lumos_capabilities::skip(lumos_capabilities::Capability::Cxx, reason);
                None
            }
            // If there is a compiler, it must accept the kernels.
            Err(reason) => panic!("{reason}"),
        }
    }

    fn run(program: &Path, sanitized: bool) -> Self {
        static SCHEDULES: AtomicU64 = AtomicU64::new(1);
        let next = SCHEDULES.fetch_add(1, Ordering::Relaxed);
        let set = std::env::var("LUMOS_SCHEDULE").ok().filter(|text| !text.is_empty());
        // Seeds of a xorshift generator, whose bits differ from its first number on.
        let seed = set.unwrap_or_else(|| next.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string());
        eprintln!("emulator: LUMOS_SCHEDULE={seed}");
        let mut child = Command::new(program)
            .arg(seed)
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the emulator was built");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let process =
            Process { child, input, output, buffers: 0, counts: Counts::default(), recording: None };
        Self { process: Arc::new(Mutex::new(process)), sanitized }
    }

    /// Counts of the operations requested so far.
    pub(super) fn counts(&self) -> Counts {
        lock(&self.process).counts
    }

    /// The most additions of a block to one address of shared memory so far.
    pub(super) fn most_additions(&self) -> Result<u32, DeviceError> {
        let (mut process, mut bytes) = (lock(&self.process), [0; 4]);
        process.send(&words(&[6]))?;
        process.output.read_exact(&mut bytes).map_err(|error| process.ended(&error))?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Another handle to the same device.
    pub(super) fn handle(&self) -> Self {
        Self { process: self.process.clone(), sanitized: self.sanitized }
    }

    /// Whether accesses beyond a buffer are detected.
    pub(super) fn is_sanitized(&self) -> bool {
        self.sanitized
    }
}

fn element(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 0,
        DType::Bf16 => 1,
        DType::F16 => 2,
    }
}

/// The compiled program for a type. It is compiled once, when it is first needed.
fn program(dtype: DType, sanitized: bool) -> &'static Result<PathBuf, String> {
    static PROGRAMS: [[OnceLock<Result<PathBuf, String>>; 3]; 2] =
        [const { [const { OnceLock::new() }; 3] }; 2];
    let element = element(dtype);
    PROGRAMS[usize::from(sanitized)][element].get_or_init(|| {
        let options: &[&str] = if sanitized { &SANITIZERS } else { &[] };
        let program = compile("emulator", element, options)?;
        // Whether the sanitizers' libraries exist is only known after a program has been linked and run.
        match Command::new(&program).stdin(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(program),
            ended => {
                eprintln!("{} does not run ({ended:?})", program.display());
                Err(format!("{} does not run", program.display()))
            }
        }
    })
}

/// Compiles a program that runs the kernels for one type of elements ([`element`]). Fails with [`NO_COMPILER`] and the
/// reason, or with the compiler's messages.
pub(super) fn compile(name: &str, element: usize, options: &[&str]) -> Result<PathBuf, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = FOLDER.get_or_init(write_sources).as_ref().map_err(Clone::clone)?;
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let program = folder.join(format!("{name}-{element}-{}", options.concat().replace(['=', ','], "-")));
    let output = Command::new(&compiler)
        // Reports of the sanitizers need line numbers only.
        .args(["-std=c++20", "-O1", "-g1", "-Wno-unknown-pragmas"])
        .args(options)
        .arg(format!("-DLUMOS_ELEMENT={element}"))
        .arg(folder.join(format!("{name}.cpp")))
        .arg("-o")
        .arg(&program)
        .output()
        .map_err(|error| format!("{NO_COMPILER} `{compiler}` ({error})"))?;
    match output.status.success() {
        true => Ok(program),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn write_sources() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/emulator");
    let folder = folder.join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, text) in SOURCES {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(folder)
}

fn lock(process: &Mutex<Process>) -> MutexGuard<'_, Process> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Sends a launch or a product, or records it.
    fn start(&mut self, message: &[u8]) -> Result<(), DeviceError> {
        if let Some((messages, count)) = &mut self.recording {
            messages.extend_from_slice(message);
            *count += 1;
            return Ok(());
        }
        self.counts.launches += 1;
        self.send(message)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), DeviceError> {
        self.input.write_all(message).map_err(|error| self.ended(&error))
    }

    fn ended(&mut self, error: &io::Error) -> DeviceError {
        DeviceError::Failed(format!("the emulator exited ({:?}): {error}", self.child.wait()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process holds no state worth keeping.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let message = words(&[3, self.id]);
        let _ = lock(&self.process).send(&message);
    }
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn place(message: &mut Vec<u8>, id: u32, numbers: &[usize]) {
    message.extend(id.to_le_bytes());
    message.extend(numbers.iter().flat_map(|number| (*number as u64).to_le_bytes()));
}

impl Accelerator for Emulator {
    type Buffer = Buffer;
    type Recording = (Vec<u8>, usize);

    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let mut process = lock(&self.process);
        let id = process.buffers;
        process.buffers += 1;
        let mut message = words(&[0]);
        place(&mut message, id, &[bytes]);
        process.send(&message)?;
        Ok(Buffer { id, process: self.process.clone() })
    }

    fn upload(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut message = words(&[1]);
        place(&mut message, buffer.id, &[offset, bytes.len()]);
        message.extend_from_slice(bytes);
        lock(&self.process).send(&message)
    }

    fn download(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let mut message = words(&[2]);
        place(&mut message, buffer.id, &[offset, bytes.len()]);
        let mut process = lock(&self.process);
        process.counts.downloads += 1;
        process.counts.downloaded += bytes.len();
        process.send(&message)?;
        process.output.read_exact(bytes).map_err(|error| process.ended(&error))
    }

    fn launch(&self, launch: &Launch, arguments: &[Argument<'_, Buffer>]) -> Result<(), DeviceError> {
        let mut message = words(&[4, launch.kernel.len() as u32]);
        message.extend_from_slice(launch.kernel.as_bytes());
        let (x, y) = launch.grid;
        message.extend(words(&[x, y, launch.threads, launch.shared_bytes, arguments.len() as u32]));
        for argument in arguments {
            match argument {
                Argument::Buffer(buffer, offset) => {
                    message.extend(words(&[0]));
                    place(&mut message, buffer.id, &[*offset]);
                }
                Argument::Integer(number) => message.extend(words(&[1, *number])),
                Argument::Number(number) => message.extend(words(&[2, number.to_bits()])),
                Argument::Nothing => message.extend(words(&[3])),
            }
        }
        lock(&self.process).start(&message)
    }

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Option<Self::Recording>, DeviceError> {
        lock(&self.process).recording = Some((Vec::new(), 0));
        work()?;
        Ok(lock(&self.process).recording.take())
    }

    fn replay(&self, (messages, count): &Self::Recording) -> Result<(), DeviceError> {
        let mut process = lock(&self.process);
        process.counts.replays += 1;
        process.counts.launches += count;
        process.send(messages)
    }

    fn multiply(
        &self,
        product: &Product,
        weights: &Buffer,
        input: &Buffer,
        (output, offset): (&Buffer, usize),
    ) -> Result<(), DeviceError> {
        let mut message = words(&[5]);
        place(&mut message, weights.id, &[0]);
        place(&mut message, input.id, &[0]);
        place(&mut message, output.id, &[offset]);
        let Product { m, n, k, lda, ldb, ldc } = *product;
        message.extend(words(&[m, n, k, lda, ldb, ldc].map(|size| size as u32)));
        lock(&self.process).start(&message)
    }
}
