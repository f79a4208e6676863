//! Bindings to NVIDIA's driver, cuBLAS and NVRTC, loaded at run time.
//!
//! Nothing is linked, so a binary built with the `cuda` feature starts on every machine. [`check_libraries`] detects
//! missing libraries before any of their functions is called. With the feature `cuda-linked` another crate links them.
#![allow(unsafe_code)] // foreign functions that take addresses

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use cudarc::cublas::sys as blas;
use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute_enum};
use cudarc::driver::{
    self, CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, result,
    sys,
};
use cudarc::nvrtc;

use super::accelerator::{Accelerator, Argument, DeviceError, Launch, Product};
use super::kernels::{KERNELS, MOST_SHARED_BYTES, SOURCE};
use crate::device::{DeviceName, Gpu, NoGpu};
use crate::machine::MachineLimits;
use crate::simd::DType;

/// Bytes copied to measure memory bandwidth.
const COPY: usize = 1 << 30;
const ROUNDS: usize = 10;
/// Rows, inputs and outputs of the matrix product that is timed.
const PRODUCT: usize = 4096;

/// One GPU with its own stream, for weights of one type.
pub(crate) struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    functions: HashMap<&'static str, CudaFunction>,
    dtype: DType,
}

/// A buffer in GPU memory.
pub(crate) struct CudaBuffer {
    /// Frees the memory when dropped.
    _memory: CudaSlice<u8>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl CudaBuffer {
    /// The address of a part of the buffer.
    fn part(&self, offset: usize, bytes: usize) -> Result<sys::CUdeviceptr, DeviceError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let reason = format!("{bytes} bytes at offset {offset} exceed a buffer of {} bytes", self.bytes);
            return Err(DeviceError(reason));
        }
        Ok(self.address + offset as u64)
    }
}

impl From<driver::DriverError> for DeviceError {
    fn from(error: driver::DriverError) -> Self {
        Self(format!("CUDA driver error: {error}"))
    }
}

impl From<cublas::result::CublasError> for DeviceError {
    fn from(error: cublas::result::CublasError) -> Self {
        Self(format!("cuBLAS error: {error}"))
    }
}

/// Whether driver, cuBLAS and NVRTC can be loaded.
#[cfg(not(feature = "cuda-linked"))]
fn present() -> [bool; 3] {
    // SAFETY: opening these libraries runs only their own initialisation.
    unsafe { [sys::is_culib_present(), blas::is_culib_present(), nvrtc::sys::is_culib_present()] }
}

/// A program does not start without the libraries that it links.
#[cfg(feature = "cuda-linked")]
fn present() -> [bool; 3] {
    [true; 3]
}

/// Fails with the first library that cannot be loaded.
fn check_libraries() -> Result<(), NoGpu> {
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
    Ok(())
}

/// Lists the GPUs that the driver reports.
pub(crate) fn gpus() -> Result<Vec<Gpu>, NoGpu> {
    check_libraries()?;
    // An old library may lack a function; the bindings panic in that case.
    match catch_unwind(listed) {
        Ok(Ok(gpus)) if gpus.is_empty() => Err(NoGpu::Driver("no GPU found".to_owned())),
        Ok(Ok(gpus)) => Ok(gpus),
        Ok(Err(error)) => Err(NoGpu::Driver(error.to_string())),
        Err(_) => Err(NoGpu::Driver("functions of CUDA 12 are missing".to_owned())),
    }
}

fn listed() -> Result<Vec<Gpu>, driver::DriverError> {
    result::init()?;
    let mut version = 0;
    // SAFETY: the driver is initialised and writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    let driver = format!("{}.{}", version / 1000, version % 1000 / 10);
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
                driver: driver.clone(),
            })
        })
        .collect()
}

impl CudaDevice {
    /// Opens a GPU for weights of a type and compiles the kernels for it.
    pub(crate) fn open(ordinal: usize, dtype: DType) -> Result<Self, DeviceError> {
        check_libraries().map_err(|missing| DeviceError(missing.to_string()))?;
        let opened = catch_unwind(AssertUnwindSafe(|| Self::prepare(ordinal, dtype)));
        opened.unwrap_or_else(|_| Err(DeviceError("a CUDA library lacks functions of CUDA 12".to_owned())))
    }

    fn prepare(ordinal: usize, dtype: DType) -> Result<Self, DeviceError> {
        let context = CudaContext::new(ordinal)?;
        // SAFETY: every buffer stays on the one stream that it was created for, which keeps operations in
        // order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let blas = CudaBlas::new(stream.clone())?;
        let (major, minor) = context.compute_capability()?;
        let module =
            context.load_module(nvrtc::Ptx::from_binary(compile(&format!("sm_{major}{minor}"), dtype)?))?;
        let mut functions = HashMap::new();
        for kernel in KERNELS {
            let function = module.load_function(kernel)?;
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, MOST_SHARED_BYTES)?;
            functions.insert(kernel, function);
        }
        Ok(Self { context, stream, blas, functions, dtype })
    }

    /// Free and total memory in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (free, total) = self.context.mem_get_info()?;
        Ok((free as u64, total as u64))
    }

    /// Measures the peak rates of the device: a copy within its memory, and a large matrix product.
    pub(crate) fn limits(&self) -> Result<MachineLimits, DeviceError> {
        let (from, to) = (self.allocate(COPY)?, self.allocate(COPY)?);
        let copied = self.seconds(|| {
            // SAFETY: both buffers have this many bytes and outlive the wait that follows.
            unsafe { result::memcpy_dtod_async(to.address, from.address, COPY, self.stream.cu_stream()) }?;
            Ok(())
        })?;
        let matrices: Vec<CudaBuffer> = [self.dtype.width(), self.dtype.width(), size_of::<f32>()]
            .iter()
            .map(|width| self.allocate(PRODUCT * PRODUCT * width))
            .collect::<Result<_, _>>()?;
        let product = Product::new(PRODUCT, PRODUCT, PRODUCT);
        let multiplied =
            self.seconds(|| self.multiply(&product, &matrices[0], &matrices[1], (&matrices[2], 0)))?;
        Ok(MachineLimits {
            // Every byte is read once and written once.
            read_bytes_per_second: 2.0 * COPY as f64 / copied,
            operations_per_second: 2.0 * (PRODUCT as f64).powi(3) / multiplied,
        })
    }

    /// Mean time of several runs in seconds, after one warm-up run.
    fn seconds(&self, work: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        work()?;
        self.stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work()?;
        }
        self.stream.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / ROUNDS as f64)
    }
}

/// Compiles the kernels to machine code for an architecture.
fn compile(architecture: &str, dtype: DType) -> Result<Vec<u8>, DeviceError> {
    let element = match dtype {
        DType::F32 => 0,
        DType::Bf16 => 1,
        DType::F16 => 2,
    };
    let failed = |error: nvrtc::result::NvrtcError| DeviceError(format!("NVRTC error: {error:?}"));
    let source = CString::new(SOURCE).map_err(|error| DeviceError(error.to_string()))?;
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
            DeviceError(format!("NVRTC failed to compile the kernels for {architecture}: {error:?} {log}"))
        });
        let code = compiled.and_then(|()| {
            let mut bytes = 0;
            nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut bytes).result().map_err(failed)?;
            let mut code = vec![0u8; bytes];
            nvrtc::sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()).result().map_err(failed)?;
            Ok(code)
        });
        nvrtc::result::destroy_program(program).map_err(failed)?;
        code
    }
}

impl Accelerator for CudaDevice {
    type Buffer = CudaBuffer;

    fn allocate(&self, bytes: usize) -> Result<CudaBuffer, DeviceError> {
        // SAFETY: nothing is read before a kernel or an upload has written it.
        let memory = unsafe { self.stream.alloc::<u8>(bytes.max(1)) };
        let memory = memory.map_err(|error| {
            DeviceError(format!("failed to allocate {bytes} bytes of its memory: {error}"))
        })?;
        let address = memory.device_ptr(&self.stream).0;
        Ok(CudaBuffer { _memory: memory, address, bytes })
    }

    fn upload(&self, buffer: &CudaBuffer, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        let to = buffer.part(offset, bytes.len())?;
        // SAFETY: the part lies in the buffer; memory that is not page-locked is staged before the call
        // returns.
        Ok(unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }?)
    }

    fn download(&self, buffer: &CudaBuffer, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        let from = buffer.part(offset, bytes.len())?;
        // SAFETY: the part lies in the buffer, and `bytes` is borrowed until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.stream.cu_stream()) }?;
        Ok(self.stream.synchronize()?)
    }

    fn launch(&self, launch: &Launch, arguments: &[Argument<'_, CudaBuffer>]) -> Result<(), DeviceError> {
        let function = self.functions.get(launch.kernel);
        let function = function.ok_or_else(|| DeviceError(format!("kernel {} not found", launch.kernel)))?;
        let addresses: Vec<u64> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Buffer(buffer, offset) => buffer.part(*offset, 0),
                _ => Ok(0),
            })
            .collect::<Result<_, _>>()?;
        let mut builder = self.stream.launch_builder(function);
        for (argument, address) in arguments.iter().zip(&addresses) {
            match argument {
                Argument::Buffer(..) | Argument::Nothing => builder.arg(address),
                Argument::Integer(number) => builder.arg(number),
                Argument::Number(number) => builder.arg(number),
            };
        }
        let config = LaunchConfig {
            grid_dim: (launch.grid.0, launch.grid.1, 1),
            block_dim: (launch.threads, 1, 1),
            shared_mem_bytes: launch.shared_bytes,
        };
        // SAFETY: the arguments are those of the kernel, which the tests check with the same source and the
        // same calls.
        unsafe { builder.launch(config) }
            .map_err(|error| DeviceError(format!("kernel {}: {error}", launch.kernel)))?;
        Ok(())
    }

    fn multiply(
        &self,
        product: &Product,
        weights: &CudaBuffer,
        input: &CudaBuffer,
        (output, offset): (&CudaBuffer, usize),
    ) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        let &Product { m, n, k, lda, ldb, ldc } = product;
        let element = self.dtype.width();
        let a = weights.part(0, ((m - 1) * lda + k) * element)?;
        let b = input.part(0, ((n - 1) * ldb + k) * element)?;
        let c = output.part(offset, ((n - 1) * ldc + m) * size_of::<f32>())?;
        let kind = match self.dtype {
            DType::F32 => blas::cudaDataType_t::CUDA_R_32F,
            DType::Bf16 => blas::cudaDataType_t::CUDA_R_16BF,
            DType::F16 => blas::cudaDataType_t::CUDA_R_16F,
        };
        let [m, n, k, lda, ldb, ldc] = [m, n, k, lda, ldb, ldc].map(|size| size as i32);
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the matrices lie in their buffers, and the two factors are read before the call returns.
        let multiplied = unsafe {
            cublas::result::gemm_ex(
                *self.blas.handle(),
                blas::cublasOperation_t::CUBLAS_OP_T,
                blas::cublasOperation_t::CUBLAS_OP_N,
                m,
                n,
                k,
                (&raw const one).cast::<c_void>(),
                a as *const c_void,
                kind,
                lda,
                b as *const c_void,
                kind,
                ldb,
                (&raw const zero).cast::<c_void>(),
                c as *mut c_void,
                blas::cudaDataType_t::CUDA_R_32F,
                ldc,
                blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        Ok(multiplied?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs NVRTC, but not a GPU.
    #[test]
    fn the_kernels_compile_for_every_architecture_and_type() {
        if !present()[2] {
            lumos_capabilities::skip(lumos_capabilities::Capability::Nvrtc, "libnvrtc.so not found");
            return;
        }
        for architecture in ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"] {
            for dtype in [DType::F32, DType::Bf16, DType::F16] {
                let code = compile(architecture, dtype).unwrap();
                assert_eq!(code[..4], *b"\x7fELF");
                for kernel in KERNELS {
                    assert!(code.windows(kernel.len()).any(|window| window == kernel.as_bytes()), "{kernel}");
                }
            }
        }
        let error = compile("sm_1", DType::F32).unwrap_err();
        assert!(error.to_string().contains("sm_1"), "{error}");
    }

    /// Runs in a separate process, from which the driver hides the GPUs of this machine.
    #[test]
    fn a_machine_without_a_gpu_is_told_what_it_lacks() {
        if std::env::var_os("LUMOS_WITHOUT_GPU").is_none() {
            let (_, module) = module_path!().split_once("::").unwrap();
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", &format!("{module}::a_machine_without_a_gpu_is_told_what_it_lacks")]);
            command.env("LUMOS_WITHOUT_GPU", "1").env("CUDA_VISIBLE_DEVICES", "-1");
            let output = command.output().unwrap();
            let said = format!("{output:?}");
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
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
                assert_eq!(opening(0), reason.to_string());
            }
            None => {
                assert!(matches!(&reason, NoGpu::Driver(_)), "{reason}");
                assert!(opening(0).starts_with("CUDA driver error: "), "{}", opening(0));
            }
        }
        assert_eq!(DeviceName::Auto.resolved(), DeviceName::Cpu);
    }

    #[test]
    fn a_gpu_that_the_machine_does_not_have_is_refused() {
        match gpus() {
            Ok(gpus) => assert!(opening(gpus.len()).starts_with("CUDA driver error: ")),
            Err(reason @ NoGpu::LibraryMissing { .. }) => assert_eq!(opening(4096), reason.to_string()),
            Err(_) => assert!(opening(4096).starts_with("CUDA driver error: ")),
        }
    }

    /// The error of opening a GPU.
    fn opening(ordinal: usize) -> String {
        CudaDevice::open(ordinal, DType::F32).err().expect("there is no such GPU").to_string()
    }
}
