//! Windows of columns into a row-major matrix, so that threads write their outputs in place.

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use super::PANEL;

/// Exclusive access to `width` adjacent columns of a row-major matrix of floats.
pub struct Columns<'a> {
    pointer: *mut f32,
    stride: usize,
    width: usize,
    rows: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a window stands for an exclusive borrow of the floats in it, which may be sent like `&mut [f32]`.
unsafe impl Send for Columns<'_> {}

impl Columns<'_> {
    /// Number of columns.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Pointer to the first float of a row; `width` floats from it may be read and written.
    #[inline]
    fn row(&mut self, row: usize) -> *mut f32 {
        assert!(row < self.rows);
        // SAFETY: the row is inside the matrix by the line above.
        unsafe { self.pointer.add(row * self.stride) }
    }

    /// Where a tile of `count` rows from `first` on writes its sums of [`PANEL`] floats, and the floats from one row to
    /// the next: in place if the window is `whole`, otherwise in `copy`, which starts with the rows' contents if `add`.
    #[inline(always)]
    pub(super) fn open<const FLOATS: usize>(
        &mut self,
        (first, count): (usize, usize),
        whole: bool,
        add: bool,
        copy: &mut Option<[f32; FLOATS]>,
    ) -> (*mut f32, usize) {
        if whole {
            return (self.row(first), self.stride);
        }
        let copy = copy.insert([0.0; FLOATS]);
        if add {
            self.read(first, copy[..count * PANEL].as_chunks_mut().0);
        }
        (copy.as_mut_ptr(), PANEL)
    }

    /// Writes the rows back if [`open`](Self::open) has copied them.
    #[inline(always)]
    pub(super) fn close<const FLOATS: usize>(
        &mut self,
        (first, count): (usize, usize),
        copy: &Option<[f32; FLOATS]>,
    ) {
        if let Some(copy) = copy {
            self.write(first, copy[..count * PANEL].as_chunks().0);
        }
    }

    /// Copies rows starting with `first`; elements beyond the window's width are unchanged.
    fn read(&mut self, first: usize, rows: &mut [[f32; PANEL]]) {
        for (index, row) in rows.iter_mut().enumerate() {
            let width = self.width.min(PANEL);
            // SAFETY: a row of the window has `self.width` floats, to which this is the only access.
            let source = unsafe { std::slice::from_raw_parts(self.row(first + index), width) };
            row[..width].copy_from_slice(source);
        }
    }

    /// Overwrites rows starting with `first`, up to the window's width.
    fn write(&mut self, first: usize, rows: &[[f32; PANEL]]) {
        for (index, row) in rows.iter().enumerate() {
            let width = self.width.min(PANEL);
            // SAFETY: as above.
            let target = unsafe { std::slice::from_raw_parts_mut(self.row(first + index), width) };
            target.copy_from_slice(&row[..width]);
        }
    }

    /// One row of the window.
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        // SAFETY: a row of the window has `width` floats, to which this is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.row(row), self.width) }
    }

    /// At most `width` columns starting with `first`.
    pub(crate) fn narrow(&mut self, first: usize, width: usize) -> Columns<'_> {
        assert!(first < self.width);
        Columns {
            // SAFETY: the first row has `self.width` floats in this window, more than `first`.
            pointer: unsafe { self.pointer.add(first) },
            stride: self.stride,
            width: width.min(self.width - first),
            rows: self.rows,
            matrix: PhantomData,
        }
    }
}

/// Adjacent columns of a row-major matrix that a product writes.
pub struct OutputColumns<'a> {
    /// Whole rows.
    pub matrix: &'a mut [f32],
    /// Floats from one row to the next.
    pub stride: usize,
    /// The columns.
    pub columns: Range<usize>,
}

impl<'a> OutputColumns<'a> {
    /// All columns of a matrix whose rows have `stride` floats.
    #[inline]
    pub fn whole(matrix: &'a mut [f32], stride: usize) -> Self {
        Self { matrix, stride, columns: 0..stride }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.matrix.len().checked_div(self.stride).unwrap_or(0)
    }
}

/// Work items per thread, so that one slow thread does not delay the others.
const PIECES_OF_A_THREAD: usize = 8;

/// Splits `target` into windows of `width` columns (the last one may be narrower) and calls `work` with each
/// and its index: on the current rayon pool if `parallel`.
pub(crate) fn for_each_window(
    target: OutputColumns<'_>,
    width: usize,
    parallel: bool,
    work: impl Fn(usize, Columns<'_>) + Sync,
) {
    let rows = target.rows();
    for_each_cell(target, &[rows], width, parallel, |_, index, window| work(index, window));
}

/// Splits `target` into windows of `width` columns (the last one may be narrower) and these at the rows after each of
/// `heights`, which add up to all rows. Calls `work` with the index of the height, that of the columns, and the cell: on
/// the current rayon pool if `parallel`. Cells of the same columns follow each other.
pub fn for_each_cell(
    target: OutputColumns<'_>,
    heights: &[usize],
    width: usize,
    parallel: bool,
    work: impl Fn(usize, usize, Columns<'_>) + Sync,
) {
    struct Shared(*mut f32);
    // SAFETY: the pointer is only used to make windows that do not overlap, see below.
    unsafe impl Sync for Shared {}
    impl Shared {
        fn get(&self) -> *mut f32 {
            self.0
        }
    }

    let rows = target.rows();
    let OutputColumns { matrix, stride, columns } = target;
    assert!(width > 0 && stride > 0 && matrix.len().is_multiple_of(stride) && columns.end <= stride);
    if rows == 0 || columns.is_empty() {
        return;
    }
    let starts: Vec<usize> =
        heights.iter().scan(0, |next, height| Some(std::mem::replace(next, *next + height))).collect();
    assert!(heights.iter().sum::<usize>() == rows && !heights.contains(&0));
    let shared = Shared(matrix.as_mut_ptr());
    let run = |index: usize| {
        let (column, block) = (index / heights.len(), index % heights.len());
        let first = columns.start + column * width;
        let window = Columns {
            // SAFETY: `first` is below `columns.end` for every index of the loops below, and the cell's rows are
            // rows of the matrix. Every index comes up once while `matrix` is borrowed, so no two windows share a
            // float.
            pointer: unsafe { shared.get().add(starts[block] * stride + first) },
            stride,
            width: width.min(columns.end - first),
            rows: heights[block],
            matrix: PhantomData,
        };
        work(block, column, window);
    };
    let cells = columns.len().div_ceil(width) * heights.len();
    if parallel {
        // A window of few rows takes about a microsecond, so a thread takes several in a row.
        let run_length = cells / (PIECES_OF_A_THREAD * rayon::current_num_threads());
        (0..cells).into_par_iter().with_min_len(run_length.max(1)).for_each(run);
    } else {
        (0..cells).for_each(run);
    }
}
