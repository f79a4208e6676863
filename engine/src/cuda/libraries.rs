//! The three libraries of a GPU: presence, versions, the GPUs that the driver lists, and compilation of the kernels.
//!
//! Nothing is linked, so a binary built with the `cuda` feature starts on every machine: [`check_libraries`] detects
//! libraries that are missing or do not match before any other of their functions is called. With the feature
//! `cuda-linked` another crate links them.
#![allow(unsafe_code)] // foreign functions that take addresses

use std::ffi::{CStr, CString};
use std::panic::catch_unwind;
use std::sync::OnceLock;

use cudarc::cublas::sys as blas;
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{DriverError, result};
use cudarc::nvrtc;
use lumos_kernels::DType;

use super::accelerator::DeviceError;
use super::driver::message;
use super::kernels::SOURCE;
use crate::device::{DeviceName, Gpu, LOWEST_MAJOR_CAPABILITY, NoGpu};

/// The oldest CUDA version of the driver and of the libraries.
const OLDEST: Version = Version(12, 0);
/// The error of `libcuda.so` of the CUDA toolkit, which is for linking only.
const STUB: sys::CUresult = sys::CUresult::CUDA_ERROR_STUB_LIBRARY;

/// A CUDA version: major, minor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(i32, i32);

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

/// Whether driver, cuBLAS and NVRTC can be loaded. Each attempt opens the files, which are large.
#[cfg(not(feature = "cuda-linked"))]
pub(super) fn present() -> [bool; 3] {
    static PRESENT: OnceLock<[bool; 3]> = OnceLock::new();
    // SAFETY: opening these libraries runs only their own initialisation.
    *PRESENT.get_or_init(|| unsafe {
        [sys::is_culib_present(), blas::is_culib_present(), nvrtc::sys::is_culib_present()]
    })
}

/// A program does not start without the libraries that it links.
#[cfg(feature = "cuda-linked")]
pub(super) fn present() -> [bool; 3] {
    [true; 3]
}

/// Fails if a library cannot be loaded, or its version does not match the driver's. Returns the driver's version.
fn check_libraries() -> Result<Version, NoGpu> {
    let [driver, blas, compiler] = present();
    for (present, library, remedy) in [
        (driver, "libcuda.so", "the NVIDIA driver"),
        (blas, "libcublas.so", "the CUDA toolkit or the Python package nvidia-cublas"),
        (compiler, "libnvrtc.so", "the CUDA toolkit or the Python package nvidia-cuda-nvrtc"),
    ] {
        if !present {
            return Err(NoGpu::LibraryMissing { library, remedy });
        }
    }
    let init = result::init();
    if init.as_ref().is_err_and(|error| error.0 == STUB) {
        let reason = "libcuda.so is the toolkit's stub for linking, not the driver; hint: take the folder `stubs` out of \
                      LD_LIBRARY_PATH";
        return Err(NoGpu::Driver(reason.to_owned()));
    }
    init.map_err(failed_driver)?;
    let driver = driver_version().map_err(failed_driver)?;
    check_versions(driver, [("libcublas.so", blas_version()), ("libnvrtc.so", compiler_version())])?;
    Ok(driver)
}

fn failed_driver(error: DriverError) -> NoGpu {
    NoGpu::Driver(message(error))
}

/// Checks the versions of the libraries against the driver's. A driver supports all versions of its major version, by
/// NVIDIA's rule of minor version compatibility, and earlier ones.
fn check_versions(driver: Version, libraries: [(&'static str, Version); 2]) -> Result<(), NoGpu> {
    if driver < OLDEST {
        let hint = "hint: update the NVIDIA driver to version 525 or later";
        return Err(NoGpu::Driver(format!("it supports CUDA {driver}, but {OLDEST} is required; {hint}")));
    }
    for (library, version) in libraries {
        if version < OLDEST || version.0 > driver.0 {
            let (version, driver) = (version.to_string(), driver.to_string());
            return Err(NoGpu::VersionMismatch { library, version, driver });
        }
    }
    Ok(())
}

fn driver_version() -> Result<Version, DriverError> {
    let mut version = 0;
    // SAFETY: the function writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok(Version(version / 1000, version % 1000 / 10))
}

fn blas_version() -> Version {
    let part = |which| {
        let mut value = 0;
        // SAFETY: the function writes one integer.
        unsafe { blas::cublasGetProperty(which, &raw mut value) };
        value
    };
    Version(
        part(blas::libraryPropertyType_t::MAJOR_VERSION),
        part(blas::libraryPropertyType_t::MINOR_VERSION),
    )
}

fn compiler_version() -> Version {
    let mut version = Version(0, 0);
    // SAFETY: the function writes two integers.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut version.0, &raw mut version.1) };
    version
}

/// Lists the GPUs that the driver reports.
pub(crate) fn gpus() -> Result<Vec<Gpu>, NoGpu> {
    // The bindings panic if a function is missing, which no library of CUDA 12 or later lacks.
    let found = catch_unwind(|| listed(check_libraries()?).map_err(failed_driver));
    match found {
        Ok(Ok(gpus)) if gpus.is_empty() => Err(NoGpu::Driver("no GPU found".to_owned())),
        Ok(found) => found,
        Err(_) => Err(NoGpu::Driver("functions of CUDA 12 are missing".to_owned())),
    }
}

fn listed(driver: Version) -> Result<Vec<Gpu>, DriverError> {
    let count = usize::try_from(result::device::get_count()?).unwrap_or(0);
    (0..count)
        .map(|ordinal| {
            let device = result::device::get(ordinal as i32)?;
            // SAFETY: the driver has just returned this device.
            let (memory, major, minor) = unsafe {
                let attribute = |attribute| result::device::get_attribute(device, attribute);
                (
                    result::device::total_mem(device)?,
                    attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                    attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
                )
            };
            Ok(Gpu {
                name: DeviceName::Cuda(ordinal),
                model: result::device::get_name(device)?,
                compute_capability: format!("{major}.{minor}"),
                memory_bytes: memory as u64,
                driver: driver.to_string(),
            })
        })
        .collect()
}

/// Checks that the libraries can be used, before a GPU is opened.
pub(super) fn check() -> Result<(), DeviceError> {
    check_libraries().map(|_| ()).map_err(|reason| DeviceError::Failed(reason.to_string()))
}

/// Compiles the kernels for a GPU of a compute capability: to machine code, or to PTX of the highest architecture below
/// it for GPUs that are newer than NVRTC, which the driver translates.
pub(super) fn compile((major, minor): (i32, i32), dtype: DType) -> Result<Vec<u8>, DeviceError> {
    if major < LOWEST_MAJOR_CAPABILITY {
        return Err(DeviceError::Failed(format!(
            "compute capability {major}.{minor} is not supported: expected {LOWEST_MAJOR_CAPABILITY}.0 or later; hint: \
             pass `--device cpu`"
        )));
    }
    let own = major * 10 + minor;
    let known = architectures().map_err(failed)?;
    if known.contains(&own) {
        return compile_for(&format!("sm_{own}"), dtype);
    }
    match known.iter().filter(|known| **known < own).max() {
        Some(highest) => compile_for(&format!("compute_{highest}"), dtype),
        None => Err(DeviceError::Failed(format!(
            "NVRTC {} does not support compute capability {major}.{minor}; hint: install NVRTC and cuBLAS of an earlier \
             CUDA version, 12 for compute capability 7.0 and 7.2",
            compiler_version()
        ))),
    }
}

fn failed(error: nvrtc::result::NvrtcError) -> DeviceError {
    DeviceError::Failed(format!("NVRTC error: {error:?}"))
}

/// The architectures that NVRTC compiles for, such as 90.
fn architectures() -> Result<Vec<i32>, nvrtc::result::NvrtcError> {
    let mut count = 0;
    // SAFETY: the first function writes one integer, the second one as many as the first returned.
    unsafe {
        nvrtc::sys::nvrtcGetNumSupportedArchs(&raw mut count).result()?;
        let mut found = vec![0; usize::try_from(count).unwrap_or(0)];
        nvrtc::sys::nvrtcGetSupportedArchs(found.as_mut_ptr()).result()?;
        Ok(found)
    }
}

/// Compiles the kernels to machine code (`sm_90`) or PTX (`compute_90`).
fn compile_for(architecture: &str, dtype: DType) -> Result<Vec<u8>, DeviceError> {
    let element = match dtype {
        DType::F32 => 0,
        DType::Bf16 => 1,
        DType::F16 => 2,
    };
    let source = CString::new(SOURCE).map_err(|error| DeviceError::Failed(error.to_string()))?;
    let program = nvrtc::result::create_program(&source, Some(c"kernels.cu")).map_err(failed)?;
    let options = [format!("--gpu-architecture={architecture}"), format!("-DLUMOS_ELEMENT={element}")];
    // SAFETY: the program was just created and is destroyed once, last; the buffer for the code has as many
    // bytes as NVRTC asks for.
    unsafe {
        let compiled = nvrtc::result::compile_program(program, &options).map_err(|error| {
            let log = nvrtc::result::get_program_log(program).unwrap_or_default();
            let log = if log.is_empty() { c"" } else { CStr::from_ptr(log.as_ptr()) }
                .to_string_lossy()
                .into_owned();
            let reason = format!("NVRTC failed to compile the kernels for {architecture}: {error:?} {log}");
            DeviceError::Failed(reason)
        });
        let is_binary = architecture.starts_with("sm_");
        let code = compiled.and_then(|()| {
            let mut bytes = 0;
            let size = match is_binary {
                true => nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut bytes),
                false => nvrtc::sys::nvrtcGetPTXSize(program, &raw mut bytes),
            };
            size.result().map_err(failed)?;
            let mut code = vec![0u8; bytes];
            let copied = match is_binary {
                true => nvrtc::sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()),
                false => nvrtc::sys::nvrtcGetPTX(program, code.as_mut_ptr().cast()),
            };
            copied.result().map_err(failed)?;
            Ok(code)
        });
        nvrtc::result::destroy_program(program).map_err(failed)?;
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::driver::CudaDevice;
    use crate::cuda::kernels::KERNELS;

    /// Runs a test again in a separate process with environment variables. Asserts that it passes.
    fn again(test: &str, variables: &[(&str, &std::ffi::OsStr)]) {
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("{module}::{test}")]).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let said = format!("{output:?}");
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    /// Needs NVRTC, but not a GPU. Reads the machine code, too, if there is a disassembler. Compiles for three architectures,
    /// each type for one; with `LUMOS_EMULATED` for all, and every type for the oldest.
    #[test]
    fn the_kernels_compile_for_every_architecture_and_type() {
        let folder = std::env::var_os("LUMOS_NVRTC").filter(|folder| !folder.is_empty());
        if let Some(folder) = folder.filter(|_| std::env::var_os("LUMOS_WITH_NVRTC").is_none()) {
            // A process looks for libraries in the folders that it was started with.
            let variables = [("LD_LIBRARY_PATH", &*folder), ("LUMOS_WITH_NVRTC", "1".as_ref())];
            return again("the_kernels_compile_for_every_architecture_and_type", &variables);
        }
        let skip = |reason| lumos_capabilities::skip(lumos_capabilities::Capability::Nvrtc, reason);
        if !present()[2] {
            return skip("libnvrtc.so not found");
        }
        let disassembler = crate::cuda::tests::sass::disassembler();
        if disassembler.is_none() {
            lumos_capabilities::skip_part(lumos_capabilities::Capability::Nvrtc, "nvdisasm not found");
        }
        // Each takes two to ten seconds.
        use DType::{Bf16, F16, F32};
        let cases = [
            ((8, 0), F32),
            ((9, 0), F16),
            ((12, 0), Bf16),
            ((8, 0), Bf16),
            ((8, 0), F16),
            ((8, 6), F32),
            ((8, 9), Bf16),
            ((10, 0), F32),
            ((12, 0), F16),
        ];
        let count = if std::env::var_os("LUMOS_EMULATED").is_some() { cases.len() } else { 3 };
        for (capability, dtype) in cases.into_iter().take(count) {
            let code = compile(capability, dtype).unwrap();
            assert_eq!(code[..4], *b"\x7fELF");
            for kernel in KERNELS {
                assert!(code.windows(kernel.len()).any(|window| window == kernel.as_bytes()), "{kernel}");
            }
            if let Some(disassembler) = &disassembler {
                crate::cuda::tests::sass::check(disassembler, &code, capability, dtype);
            }
        }
        // A GPU that is newer than NVRTC gets PTX.
        let code = String::from_utf8(compile((99, 0), DType::F32).unwrap()).unwrap();
        assert!(code.contains(".target sm_"), "{code:.400}");
        let error = compile((6, 1), DType::F32).unwrap_err();
        assert!(error.to_string().contains("compute capability 6.1 is not supported"), "{error}");
    }

    #[test]
    fn libraries_match_the_driver() {
        let check = |driver, blas, compiler| {
            let error = check_versions(driver, [("libcublas.so", blas), ("libnvrtc.so", compiler)]).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        let (new, old) = (Version(13, 0), Version(12, 4));
        assert_eq!(check(new, new, new) + &check(old, Version(12, 9), old) + &check(new, old, old), "");
        for (message, words) in [
            (
                check(old, new, old),
                ["libcublas.so is of CUDA 13.0", "up to CUDA 12.4", "build.sh --libraries"],
            ),
            (check(old, old, new), ["libnvrtc.so is of CUDA 13.0", "up to CUDA 12.4", "update the driver"]),
            (check(new, Version(11, 8), new), ["libcublas.so is of CUDA 11.8", "hint", "build.sh"]),
            (check(Version(11, 4), old, old), ["CUDA 11.4", "12.0 is required", "525"]),
        ] {
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }

    /// Runs in a separate process, from which the driver hides the GPUs of this machine.
    #[test]
    fn a_machine_without_a_gpu_is_told_what_it_lacks() {
        if std::env::var_os("LUMOS_WITHOUT_GPU").is_none() {
            let variables = [("LUMOS_WITHOUT_GPU", "1".as_ref()), ("CUDA_VISIBLE_DEVICES", "-1".as_ref())];
            return again("a_machine_without_a_gpu_is_told_what_it_lacks", &variables);
        }
        let libraries = [
            ("libcuda.so", "the NVIDIA driver"),
            ("libcublas.so", "the CUDA toolkit or the Python package nvidia-cublas"),
            ("libnvrtc.so", "the CUDA toolkit or the Python package nvidia-cuda-nvrtc"),
        ];
        let reason = gpus().unwrap_err();
        let first = present().into_iter().zip(libraries).find(|(is_present, _)| !is_present);
        match first {
            Some((_, (library, remedy))) => {
                assert_eq!(reason, NoGpu::LibraryMissing { library, remedy });
                assert!(
                    reason.to_string().starts_with(&format!("{library} not found; hint: install {remedy}"))
                );
            }
            None => assert!(matches!(&reason, NoGpu::Driver(_)), "{reason}"),
        }
        assert_eq!(opening(0), reason.to_string());
        assert_eq!(DeviceName::Auto.resolved(), DeviceName::Cpu);
    }

    #[test]
    fn a_gpu_that_the_machine_does_not_have_is_refused() {
        match gpus() {
            Ok(gpus) => assert!(opening(gpus.len()).starts_with("CUDA driver error: ")),
            Err(reason) => assert_eq!(opening(4096), reason.to_string()),
        }
    }

    /// The error of opening a GPU.
    fn opening(ordinal: usize) -> String {
        CudaDevice::open(ordinal, DType::F32)
            .err()
            .expect("the ordinal is larger than the number of GPUs")
            .to_string()
    }
}
