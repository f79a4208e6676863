//! Limits of a statement and of an episode.

use std::time::Duration;

use lumos_environments::sql::{Cell, Row};

/// Time limit of a statement, as set on the server.
pub(super) const STATEMENT_TIME: Duration = Duration::from_secs(5);
/// Additional time before the connection is closed, for the server to stop the statement itself.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// Message for a statement that exceeds its time or budget.
pub(super) const TOO_LONG: &str = "Query execution was interrupted (it takes too long)";
/// Maximum number of rows in a result.
pub(super) const ROWS: usize = 20_000;
/// Maximum size of a cell, in bytes.
pub(super) const CELL_BYTES: usize = 256 << 10;
/// Maximum size of a result, in bytes of its cells.
pub(super) const RESULT_BYTES: usize = 4 << 20;
/// Maximum number of rows written by the statements of an episode.
pub(super) const WRITTEN_ROWS: u64 = 200_000;
/// Maximum growth of an episode's database on a server, in bytes.
pub(super) const WRITTEN_BYTES: u64 = 64 << 20;

/// Counts the rows and bytes of a result.
#[derive(Debug, Default)]
pub(super) struct Meter {
    rows: usize,
    bytes: usize,
}

impl Meter {
    /// Counts a row.
    ///
    /// # Errors
    /// A message for the model if a limit is exceeded.
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
