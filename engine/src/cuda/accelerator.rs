//! The interface between the forward pass and a device: [`Accelerator`], its kernels' [`Launch`]es and matrix
//! [`Product`]s.

/// A failed device operation.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// This operation failed; others may succeed.
    #[error("{0}")]
    Failed(String),
    /// The device fails every further operation of this process, or never ends one.
    #[error("{0}")]
    Lost(String),
}

impl DeviceError {
    /// The error with what failed before its reason.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn within(self, what: &str) -> Self {
        match self {
            Self::Failed(reason) => Self::Failed(format!("{what}: {reason}")),
            Self::Lost(reason) => Self::Lost(format!("{what}: {reason}")),
        }
    }
}

/// A kernel argument.
pub(crate) enum Argument<'a, B> {
    /// A buffer, at an offset in bytes.
    Buffer(&'a B, usize),
    Integer(u32),
    Number(f32),
    /// A null pointer.
    Nothing,
}

/// A kernel of `kernels.cu`, `attention.cu` or `sampling.cu` with its launch dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    /// Blocks in both grid dimensions.
    pub(crate) grid: (u32, u32),
    /// Threads per block.
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
}

/// The sizes of a product of rows with weights (`outputs` × `inputs`, row-major), as passed to
/// `cublasGemmEx`. cuBLAS is column-major, so our rows are its columns. The weights are its first matrix,
/// transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) lda: usize,
    pub(crate) ldb: usize,
    pub(crate) ldc: usize,
}

impl Product {
    pub(crate) fn new(rows: usize, inputs: usize, outputs: usize) -> Self {
        Self { m: outputs, n: rows, k: inputs, lda: inputs, ldb: inputs, ldc: outputs }
    }
}

/// A device with its own memory that runs operations in order.
///
/// Only [`download`](Self::download) waits for the device. Buffers may be written through shared references:
/// an operation sees the effects of all earlier operations.
pub(crate) trait Accelerator: Send {
    /// A buffer in device memory.
    type Buffer: Send;
    /// Launches and products that were recorded, and are started together.
    type Recording: Send;

    /// Allocates `bytes` bytes of uninitialized memory.
    fn allocate(&self, bytes: usize) -> Result<Self::Buffer, DeviceError>;

    /// Copies to the device; `bytes` may be reused as soon as the call returns.
    fn upload(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for all earlier operations, then copies from the device.
    fn download(&self, buffer: &Self::Buffer, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Launches a kernel with `arguments` as its parameters.
    fn launch(&self, launch: &Launch, arguments: &[Argument<'_, Self::Buffer>]) -> Result<(), DeviceError>;

    /// Records the launches and products of `work`, which does nothing else, instead of computing them. `None` if the device
    /// cannot record them.
    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<Option<Self::Recording>, DeviceError>;

    /// Starts what was recorded. Its buffers must still exist.
    fn replay(&self, recording: &Self::Recording) -> Result<(), DeviceError>;

    /// Multiplies `input` with `weights`, both of the device's element type, and writes float32 to `output`
    /// at the given offset in bytes.
    fn multiply(
        &self,
        product: &Product,
        weights: &Self::Buffer,
        input: &Self::Buffer,
        output: (&Self::Buffer, usize),
    ) -> Result<(), DeviceError>;
}
