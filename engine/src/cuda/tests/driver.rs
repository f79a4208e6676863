//! [`CudaDevice`] on a fake GPU, which keeps to the letter of the driver's documentation
//! (`emulator/fake_driver.cpp`).

use std::process::Command;
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use lumos_kernels::DType;

use crate::cuda::accelerator::{Accelerator, Argument, Launch, Product};
use crate::cuda::driver::{CudaDevice, free_memory};
use crate::fixtures::Uniform;

/// Runs the current test again in a process that finds a fake GPU's libraries. Returns whether this is that process;
/// otherwise the test has passed there, or is skipped.
fn on_fake_gpu(test: &str) -> bool {
    if std::env::var_os("LUMOS_ON_FAKE_GPU").is_some() {
        return true;
    }
    let Some(folder) = lumos_capabilities::fake_gpu() else { return false };
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{test}")]);
    let output = command.env("LD_LIBRARY_PATH", folder).env("LUMOS_ON_FAKE_GPU", "1").output().unwrap();
    let said = format!("{output:?}");
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// The driver keeps freed memory until the device is synchronized; an engine that is loaded next must not find it taken.
#[test]
fn freed_memory_is_free_again() {
    if !on_fake_gpu("freed_memory_is_free_again") {
        return;
    }
    const BYTES: usize = 1 << 30;
    let before = free_memory(0).unwrap();
    let device = CudaDevice::open(0, DType::F32).unwrap();
    let open = device.memory().unwrap().0;
    let buffer = device.allocate(BYTES).unwrap();
    assert_eq!(device.memory().unwrap().0, open - BYTES as u64);
    drop(buffer);
    assert_eq!(device.memory().unwrap().0, open);

    // A device that is dropped behind its buffers gives their memory back without anybody who asks for it. It keeps the
    // context of the process alive.
    let context = CudaContext::new(0).unwrap();
    let free = || context.mem_get_info().unwrap().0 as u64;
    let buffer = device.allocate(BYTES).unwrap();
    drop(buffer);
    assert_eq!(free(), open - BYTES as u64);
    drop(device);
    assert!(free() >= open, "{} of {open} bytes are free", free());
    drop(context);
    assert_eq!(free_memory(0).unwrap(), before);
}

/// A caller may change what it uploaded as soon as the call returns, however late the device copies it, and with more
/// bytes than fit into page-locked memory at once.
#[test]
fn uploads_are_of_the_bytes_at_the_time_of_the_call() {
    if !on_fake_gpu("uploads_are_of_the_bytes_at_the_time_of_the_call") {
        return;
    }
    let device = CudaDevice::open(0, DType::F32).unwrap();
    for size in [3, 1 << 20, (40 << 20) + 5] {
        // Without a period that the sizes of page-locked buffers have, too.
        let pattern = |index: usize| ((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let mut bytes: Vec<u8> = (0..size).map(pattern).collect();
        let buffer = device.allocate(size).unwrap();
        device.upload(&buffer, 0, &bytes).unwrap();
        bytes.fill(0xee);
        // The first call behind the upload.
        drop(device.allocate(1).unwrap());
        device.download(&buffer, 0, &mut bytes).unwrap();
        let wrong = bytes.iter().enumerate().filter(|(index, byte)| **byte != pattern(*index)).count();
        assert_eq!(wrong, 0, "of {size} bytes");
    }
    assert!(device.upload(&device.allocate(4).unwrap(), 1, &[0; 4]).is_err());
}

/// An engine may be loaded by one thread and dropped by another one that never computed, also on another device.
#[test]
fn a_device_is_closed_by_any_thread() {
    if !on_fake_gpu("a_device_is_closed_by_any_thread") {
        return;
    }
    let before = free_memory(0).unwrap();
    let device = CudaDevice::open(0, DType::Bf16).unwrap();
    let buffer = device.allocate(1 << 20).unwrap();
    std::thread::spawn(move || drop((buffer, device))).join().unwrap();
    assert_eq!(free_memory(0).unwrap(), before);
    // Without buffers, whose release makes the context current.
    let device = CudaDevice::open(0, DType::Bf16).unwrap();
    std::thread::spawn(move || drop(device)).join().unwrap();
    assert_eq!(free_memory(0).unwrap(), before);
}

/// The engines of a process share the context of a GPU, which must not be synchronized while launches are recorded.
#[test]
fn other_engines_wait_for_a_recording() {
    if !on_fake_gpu("other_engines_wait_for_a_recording") {
        return;
    }
    let device = CudaDevice::open(0, DType::F32).unwrap();
    let buffer = device.allocate(4096).unwrap();
    let gated = Launch { kernel: "gated", grid: (1, 1), threads: 128, shared_bytes: 0 };
    let arguments = [Argument::Buffer(&buffer, 0), Argument::Buffer(&buffer, 0), Argument::Integer(0)];
    for closes in [false, true] {
        let mut other = closes.then(|| CudaDevice::open(0, DType::F32).unwrap());
        let mut synchronizing = None;
        let mut work = || {
            let closed = other.take();
            let thread = std::thread::spawn(move || match closed {
                Some(other) => drop(other),
                None => assert!(free_memory(0).is_ok()),
            });
            // Without the lock, the thread ends in this time.
            let start = Instant::now();
            while !thread.is_finished() && start.elapsed() < Duration::from_millis(300) {
                std::thread::sleep(Duration::from_millis(1));
            }
            synchronizing = Some(thread);
            device.launch(&gated, &arguments)
        };
        let recording = device.record(&mut work).unwrap();
        device.replay(&recording.expect("the launch is recorded")).unwrap();
        synchronizing.unwrap().join().unwrap();
    }
    device.download(&buffer, 0, &mut [0]).unwrap();
}

/// The error of a launch or a product names it, and does not end the process.
#[test]
fn launches_that_the_gpu_refuses_are_errors() {
    if !on_fake_gpu("launches_that_the_gpu_refuses_are_errors") {
        return;
    }
    let device = CudaDevice::open(0, DType::F32).unwrap();
    let buffer = device.allocate(4096).unwrap();
    let launch = |kernel, grid, shared_bytes| {
        let launch = Launch { kernel, grid, threads: 128, shared_bytes };
        let arguments = [Argument::Buffer(&buffer, 0), Argument::Buffer(&buffer, 0), Argument::Integer(0)];
        device.launch(&launch, &arguments).map_err(|error| error.to_string())
    };
    assert_eq!(launch("gated", (1, 1), 0), Ok(()));
    for (kernel, grid, shared_bytes, word) in [
        ("gated", (1, 70_000), 0, "kernel gated: CUDA driver error"),
        ("gated", (1, 1), 60 << 10, "kernel gated: CUDA driver error"),
        ("gates", (1, 1), 0, "kernel gates not found"),
    ] {
        let error = launch(kernel, grid, shared_bytes).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    let product = Product::new(2, 64, 64);
    assert!(device.multiply(&product, &buffer, &buffer, (&buffer, 0)).is_err());
}

/// cuBLAS with a workspace splits the sums of some numbers of rows.
#[test]
fn a_row_of_a_product_does_not_depend_on_the_other_rows() {
    if !on_fake_gpu("a_row_of_a_product_does_not_depend_on_the_other_rows") {
        return;
    }
    const INPUTS: usize = 96;
    const OUTPUTS: usize = 24;
    const ROWS: usize = 9;
    let mut random = Uniform::new(4);
    for dtype in [DType::Bf16, DType::F16] {
        let device = CudaDevice::open(0, dtype).unwrap();
        let mut uploaded = |count: usize| {
            let bytes = super::bytes_of(&random.values(count, 1.0), dtype);
            let buffer = device.allocate(bytes.len()).unwrap();
            device.upload(&buffer, 0, &bytes).unwrap();
            buffer
        };
        let (weights, input) = (uploaded(OUTPUTS * INPUTS), uploaded(ROWS * INPUTS));
        let output = device.allocate(ROWS * OUTPUTS * 4).unwrap();
        let products = |rows: usize| {
            device.multiply(&Product::new(rows, INPUTS, OUTPUTS), &weights, &input, (&output, 0)).unwrap();
            let mut bytes = vec![0; rows * OUTPUTS * 4];
            device.download(&output, 0, &mut bytes).unwrap();
            bytes
        };
        let all = products(ROWS);
        for rows in 1..ROWS {
            assert!(products(rows) == all[..rows * OUTPUTS * 4], "{dtype}: {rows} rows");
        }
    }
}
