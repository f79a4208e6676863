//! The limits of one statement and of one episode.

use std::time::Duration;

use lumos_environments::sql::{Cell, Row};

/// The longest time of one statement, as the server is told.
pub(super) const STATEMENT_TIME: Duration = Duration::from_secs(5);
/// So much longer a server may take to stop by itself before the connection is cut.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// What is said of a statement that takes too long.
pub(super) const TOO_LONG: &str = "Query execution was interrupted (it takes too long)";
/// The most rows of a result.
pub(super) const ROWS: usize = 20_000;
/// The longest cell, in bytes.
pub(super) const CELL_BYTES: usize = 256 << 10;
/// The largest result, in bytes of its cells.
pub(super) const RESULT_BYTES: usize = 4 << 20;
/// The most rows that an episode's statements may write.
pub(super) const WRITTEN_ROWS: u64 = 200_000;
/// The most bytes that an episode's database on a server may grow by.
pub(super) const WRITTEN_BYTES: u64 = 64 << 20;

/// Counts a result's rows and bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Meter {
    rows: usize,
    bytes: usize,
}

impl Meter {
    /// Takes a row in.
    ///
    /// # Errors
    /// Why the result is refused, for the model.
    pub(super) fn take(&mut self, row: &Row) -> Result<(), String> {
        self.rows += 1;
        if self.rows > ROWS {
            return Err(format!("The result has more than {ROWS} rows"));
        }
        for cell in row {
            let bytes = match cell {
                Cell::Text(text) | Cell::Decimal(text) => text.len(),
                Cell::Bytes(bytes) => bytes.len(),
                _ => 8,
            };
            if bytes > CELL_BYTES {
                return Err(format!("A value of the result is longer than {CELL_BYTES} bytes"));
            }
            self.bytes += bytes;
        }
        if self.bytes > RESULT_BYTES {
            return Err(format!("The result is larger than {RESULT_BYTES} bytes"));
        }
        Ok(())
    }
}
