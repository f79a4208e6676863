//! What a forward pass asks of a device.

/// Why a device did not do what it was asked for.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DeviceError(pub(crate) String);

/// What a kernel is given.
pub(crate) enum Argument<'a, B> {
    /// The address of a buffer, so many bytes from its start.
    Buffer(&'a B, usize),
    Integer(u32),
    Number(f32),
    /// No buffer.
    Nothing,
}

/// A kernel of `kernels.cu` or `sampling.cu` and how often it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    /// Blocks in both directions.
    pub(crate) grid: (u32, u32),
    /// Threads of a block.
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
}

/// The sizes of a product of rows with weights (`outputs` × `inputs`, row after row), as `cublasGemmEx` has them: it
/// counts column by column, so that rows of ours are columns there. The weights are its first matrix, transposed.
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

/// A device with memory of its own that does one thing after the other.
///
/// Nothing but [`download`](Self::download) waits for it. Buffers may be written through shared references: what is
/// asked for later sees what was asked for before.
pub(crate) trait Accelerator: Send {
    /// A part of the device's memory.
    type Buffer: Send;

    /// So many bytes, with nothing sensible in them.
    fn allocate(&self, bytes: usize) -> Result<Self::Buffer, DeviceError>;

    /// Copies to the device; `bytes` may be used again at once.
    fn upload(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for everything before and copies from the device.
    fn download(&self, buffer: &Self::Buffer, offset: usize, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Starts a kernel, whose parameters `arguments` are.
    fn launch(&self, launch: &Launch, arguments: &[Argument<'_, Self::Buffer>]) -> Result<(), DeviceError>;

    /// Multiplies `input` with `weights`, both of the device's element type, into float32, so many bytes from the start
    /// of `output`.
    fn multiply(
        &self,
        product: &Product,
        weights: &Self::Buffer,
        input: &Self::Buffer,
        output: (&Self::Buffer, usize),
    ) -> Result<(), DeviceError>;
}
