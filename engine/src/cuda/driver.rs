//! [`CudaDevice`]: the CUDA driver and cuBLAS as an [`Accelerator`].
#![allow(unsafe_code)] // foreign functions that take addresses

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::cublas;
use cudarc::cublas::sys as blas;
use cudarc::driver::sys::{CUfunction_attribute_enum, CUresult};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg, result, sys,
};
use cudarc::nvrtc;
use lumos_kernels::DType;

use super::accelerator::{Accelerator, Argument, DeviceError, Launch, Product};
use super::kernels::{KERNELS, MOST_SHARED_BYTES};
use super::libraries;
use super::staging::Staging;
use crate::device::lost_gpu;
use crate::machine::MachineLimits;

/// Bytes copied to measure memory bandwidth.
const COPY: usize = 1 << 30;
const ROUNDS: usize = 10;
/// Rows, inputs and outputs of the matrix product that is timed.
const PRODUCT: usize = 8192;
/// Random numbers that fill the timed matrices, over and over.
const RANDOM: usize = 1 << 20;
/// Time in seconds after which work of a GPU counts as hung; `LUMOS_GPU_TIMEOUT` sets another one.
const PATIENCE: u64 = 300;

/// One GPU with its own stream, for weights of one type.
pub(crate) struct CudaDevice {
    functions: HashMap<&'static str, CudaFunction>,
    staging: RefCell<Staging>,
    blas: Blas,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    dtype: DType,
}

/// A cuBLAS handle.
struct Blas {
    handle: blas::cublasHandle_t,
    context: Arc<CudaContext>,
}

/// Locks recording in this process: while the guard lives, no other engine records launches or synchronizes the
/// context. Engines share the context of a GPU; synchronizing it while one of its streams is captured fails, and the
/// capture fails, too.
fn lock_capture() -> MutexGuard<'static, ()> {
    static CAPTURE: Mutex<()> = Mutex::new(());
    CAPTURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recorded sequence of launches.
pub(crate) struct Recording(CudaGraph);

// SAFETY: a graph may be used by any thread, one at a time.
unsafe impl Send for Recording {}

// SAFETY: a handle may be used by any thread, one at a time.
unsafe impl Send for Blas {}

impl Drop for Blas {
    fn drop(&mut self) {
        // The thread may never have used the context: an engine may be dropped without having computed. After a fatal
        // error nothing can be destroyed any more, and a kernel that does not end would be waited for.
        if lost_gpu().is_none() && self.context.bind_to_thread().is_ok() {
            // cuBLAS synchronizes the context.
            let _guard = lock_capture();
            // SAFETY: created with the device, and destroyed once.
            let _ = unsafe { cublas::result::destroy_handle(self.handle) };
        }
    }
}

/// A buffer in GPU memory.
pub(crate) struct CudaBuffer {
    /// Freed when it is dropped.
    memory: CudaSlice<u8>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        // Freeing needs the context, which this thread may never have used: an engine may be dropped without having computed.
        let _ = self.memory.context().bind_to_thread();
    }
}

impl CudaBuffer {
    /// The address of a part of the buffer.
    fn part(&self, offset: usize, bytes: usize) -> Result<sys::CUdeviceptr, DeviceError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let reason = format!("{bytes} bytes at offset {offset} exceed a buffer of {} bytes", self.bytes);
            return Err(DeviceError::Failed(reason));
        }
        Ok(self.address + offset as u64)
    }
}

/// Whether a GPU fails all further calls of the process after this error.
fn is_fatal(error: CUresult) -> bool {
    use CUresult as E;
    matches!(
        error,
        E::CUDA_ERROR_ILLEGAL_ADDRESS
            | E::CUDA_ERROR_ECC_UNCORRECTABLE
            | E::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | E::CUDA_ERROR_CONTAINED
            | E::CUDA_ERROR_LAUNCH_TIMEOUT
            | E::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | E::CUDA_ERROR_ASSERT
            | E::CUDA_ERROR_HARDWARE_STACK_ERROR
            | E::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | E::CUDA_ERROR_MISALIGNED_ADDRESS
            | E::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | E::CUDA_ERROR_INVALID_PC
            | E::CUDA_ERROR_LAUNCH_FAILED
            | E::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | E::CUDA_ERROR_EXTERNAL_DEVICE
            | E::CUDA_ERROR_DEVICE_UNAVAILABLE
            | E::CUDA_ERROR_UNKNOWN
    )
}

/// The driver's text and name of an error.
pub(super) fn message(error: DriverError) -> String {
    let text = |text: Result<&CStr, DriverError>| text.map(|text| text.to_string_lossy().into_owned());
    match (text(error.error_string()), text(error.error_name())) {
        (Ok(text), Ok(name)) => format!("{text} ({name})"),
        _ => format!("code {}", error.0 as u32),
    }
}

impl From<DriverError> for DeviceError {
    fn from(error: DriverError) -> Self {
        let reason = format!("CUDA driver error: {}", message(error));
        if is_fatal(error.0) { Self::Lost(reason) } else { Self::Failed(reason) }
    }
}

/// Waits until `query` no longer returns that work is in progress.
pub(super) fn finished(query: impl Fn() -> Result<(), DriverError>) -> Result<(), DeviceError> {
    let start = Instant::now();
    let seconds = std::env::var("LUMOS_GPU_TIMEOUT").ok().and_then(|text| text.parse().ok());
    let patience = Duration::from_secs(seconds.unwrap_or(PATIENCE));
    loop {
        match query() {
            Err(DriverError(CUresult::CUDA_ERROR_NOT_READY)) => {}
            ended => return Ok(ended?),
        }
        let elapsed = start.elapsed();
        if elapsed > patience {
            let seconds = patience.as_secs();
            return Err(DeviceError::Lost(format!("a kernel did not end within {seconds} s")));
        }
        // Steps of large models take tens of milliseconds; asking more often than this costs a core and gains nothing.
        if elapsed > Duration::from_millis(2) {
            std::thread::sleep(Duration::from_micros(20));
        } else {
            std::thread::yield_now();
        }
    }
}

/// The free memory of a GPU in bytes. Memory that was freed before counts as free.
pub(crate) fn free_memory(ordinal: usize) -> Result<u64, DeviceError> {
    libraries::check()?;
    let context = CudaContext::new(ordinal)?;
    release(&context)?;
    Ok(context.mem_get_info()?.0 as u64)
}

/// Gives freed memory back to the driver, which keeps it in a pool until the device is synchronized.
fn release(context: &CudaContext) -> Result<(), DeviceError> {
    let _guard = lock_capture();
    context.synchronize()?;
    // Without pools, memory is freed at once.
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut pool = std::ptr::null_mut();
    // SAFETY: the device exists; its default pool is never destroyed.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()).result()?;
        sys::cuMemPoolTrimTo(pool, 0).result()?;
    }
    Ok(())
}

impl CudaDevice {
    /// Opens a GPU for weights of a type and compiles the kernels for it.
    pub(crate) fn open(ordinal: usize, dtype: DType) -> Result<Self, DeviceError> {
        libraries::check()?;
        let context = CudaContext::new(ordinal)?;
        // SAFETY: every buffer stays on the one stream that it was created for, which keeps operations in
        // order.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        let handle = cublas::result::create_handle().map_err(blas_failed)?;
        let blas = Blas { handle, context: context.clone() };
        // Without memory for intermediate sums cuBLAS does not split the inputs of a product, which it does for some numbers
        // of rows only, and every row is added in the same order. It is not slower (docs/performance.md).
        // SAFETY: both are alive. Another stream would reset the workspace.
        unsafe {
            cublas::result::set_stream(handle, stream.cu_stream().cast()).map_err(blas_failed)?;
            blas::cublasSetWorkspace_v2(handle, std::ptr::null_mut(), 0).result().map_err(blas_failed)?;
        }
        let code = libraries::compile(context.compute_capability()?, dtype)?;
        let module = context.load_module(nvrtc::Ptx::from_binary(code))?;
        let mut functions = HashMap::new();
        for kernel in KERNELS {
            let function = module.load_function(kernel)?;
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, MOST_SHARED_BYTES)?;
            functions.insert(kernel, function);
        }
        let staging = RefCell::new(Staging::new(&context)?);
        Ok(Self { functions, staging, blas, stream, context, dtype })
    }

    /// Free and total memory in bytes. Memory that was freed before counts as free.
    pub(crate) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        release(&self.context)?;
        let (free, total) = self.context.mem_get_info()?;
        Ok((free as u64, total as u64))
    }

    /// Measures the peak rates of the device: a copy within its memory, and cuBLAS's product of large matrices.
    pub(crate) fn limits(&self) -> Result<MachineLimits, DeviceError> {
        let copied = {
            let (from, to) = (self.allocate(COPY)?, self.allocate(COPY)?);
            self.seconds(|| {
                // SAFETY: both buffers have this many bytes and outlive the wait that follows.
                unsafe {
                    result::memcpy_dtod_async(to.address, from.address, COPY, self.stream.cu_stream())
                }?;
                Ok(())
            })?
        };
        release(&self.context)?;
        let matrices: Vec<CudaBuffer> = [self.dtype.width(), self.dtype.width(), size_of::<f32>()]
            .iter()
            .map(|width| self.allocate(PRODUCT * PRODUCT * width))
            .collect::<Result<_, _>>()?;
        // A GPU is faster with zeros, whose bits do not change.
        let random = random_bytes(self.dtype);
        for matrix in &matrices[..2] {
            for start in (0..matrix.bytes).step_by(random.len()) {
                self.upload(matrix, start, &random[..random.len().min(matrix.bytes - start)])?;
            }
        }
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
        self.wait()?;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work()?;
        }
        self.wait()?;
        Ok(start.elapsed().as_secs_f64() / ROUNDS as f64)
    }

    /// Waits for all earlier operations.
    fn wait(&self) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        // SAFETY: the stream is alive.
        finished(|| unsafe { sys::cuStreamQuery(self.stream.cu_stream()) }.result())
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // The model's buffers were freed before; another engine may ask for the memory next. After a fatal error there is
        // nothing to give back.
        if lost_gpu().is_none() {
            let _ = release(&self.context);
        }
    }
}

/// Numbers between -1 and 1.
fn random_bytes(dtype: DType) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let numbers = std::iter::repeat_with(&mut next).take(RANDOM);
    match dtype {
        DType::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
        DType::Bf16 => numbers.flat_map(|number| half::bf16::from_f32(number).to_le_bytes()).collect(),
        DType::F16 => numbers.flat_map(|number| half::f16::from_f32(number).to_le_bytes()).collect(),
    }
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` passes it
fn blas_failed(error: cublas::result::CublasError) -> DeviceError {
    DeviceError::Failed(format!("cuBLAS error: {error}"))
}

impl Accelerator for CudaDevice {
    type Buffer = CudaBuffer;
    type Recording = Recording;

    fn allocate(&self, bytes: usize) -> Result<CudaBuffer, DeviceError> {
        // SAFETY: nothing is read before a kernel or an upload has written it.
        let memory = unsafe { self.stream.alloc::<u8>(bytes.max(1)) };
        let memory = memory.map_err(|error| {
            DeviceError::from(error).within(&format!("failed to allocate {bytes} bytes of its memory"))
        })?;
        let address = memory.device_ptr(&self.stream).0;
        Ok(CudaBuffer { memory, address, bytes })
    }

    fn upload(&self, buffer: &CudaBuffer, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.context.bind_to_thread()?;
        let to = buffer.part(offset, bytes.len())?;
        self.staging.borrow_mut().upload(to, bytes, &self.stream)
    }

    fn download(&self, buffer: &CudaBuffer, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // The copy to memory that is not page-locked would wait for ever for a kernel that never ends.
        self.wait()?;
        let from = buffer.part(offset, bytes.len())?;
        // SAFETY: the part lies in the buffer, and `bytes` is borrowed until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.stream.cu_stream()) }?;
        self.wait()
    }

    fn launch(&self, launch: &Launch, arguments: &[Argument<'_, CudaBuffer>]) -> Result<(), DeviceError> {
        let function = self.functions.get(launch.kernel);
        let function =
            function.ok_or_else(|| DeviceError::Failed(format!("kernel {} not found", launch.kernel)))?;
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
            .map_err(|error| DeviceError::from(error).within(&format!("kernel {}", launch.kernel)))?;
        Ok(())
    }

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Option<Recording>, DeviceError> {
        let _guard = lock_capture();
        // Other threads may allocate and wait for their streams in the meantime.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let worked = self.stream.begin_capture(mode).map_err(DeviceError::from).and_then(|()| work());
        // Also after an error, because the stream computes nothing before.
        let ended = self.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(DeviceError::from);
        match (worked, ended) {
            (Err(DeviceError::Lost(reason)), _) | (_, Err(DeviceError::Lost(reason))) => {
                Err(DeviceError::Lost(reason))
            }
            (Ok(()), Ok(graph)) => Ok(graph.map(Recording)),
            (Err(DeviceError::Failed(reason)), _) | (_, Err(DeviceError::Failed(reason))) => {
                tracing::warn!(
                    "failed to record the launches of a step; they are started one by one: {reason}"
                );
                Ok(None)
            }
        }
    }

    fn replay(&self, recording: &Recording) -> Result<(), DeviceError> {
        Ok(recording.0.launch()?)
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
                self.blas.handle,
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
        // cuBLAS does not say whether the GPU failed before.
        multiplied.map_err(|error| self.wait().err().unwrap_or_else(|| blas_failed(error)))
    }
}
