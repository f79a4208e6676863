//! Compares the item of a recorded episode with the data set, if that is available.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use super::{SqlRow, same};
use crate::benchmark::Benchmark;
use crate::intercode_sql::IntercodeSql;
use crate::loading::DataSource;

/// The data set's records, by position.
type Records = Arc<Vec<Value>>;

impl SqlRow {
    /// Checks that the database, the question and the gold query equal those of the data set's record.
    pub(super) fn check_item(&self) -> Result<(), String> {
        let Some(place) = self.task_id else { return Ok(()) };
        let Some(records) = records(&self.folder)? else { return Ok(()) };
        let Some(record) = records.get(place) else {
            return Err(format!("task_id: expected {place}, the data set has {} records", records.len()));
        };
        for (field, recorded, name) in
            [("db", &self.db, "db"), ("query", &self.query, "query"), ("gold_sql", &self.gold_sql, "gold")]
        {
            let place = format!("{field} of record {place}");
            same(&place, &Some(recorded.as_str()), &record.get(name).and_then(Value::as_str))?;
        }
        Ok(())
    }
}

/// Returns the records of the data set for a folder of recorded cases, read once; `None` if the data set is
/// missing.
fn records(folder: &Path) -> Result<Option<Records>, String> {
    static KNOWN: OnceLock<Mutex<HashMap<PathBuf, Records>>> = OnceLock::new();
    let file = crate::replay::data_folder(folder).join(IntercodeSql.data_file());
    if !file.is_file() {
        return Ok(None);
    }
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(records) = known.get(&file) {
        return Ok(Some(Arc::clone(records)));
    }
    let items = IntercodeSql.open(DataSource::File(file.clone())).map_err(|error| error.to_string())?;
    let records = items.map(|item| item.map(|item| item.record));
    let records: Vec<Value> = records.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let records = Arc::new(records);
    known.insert(file, Arc::clone(&records));
    Ok(Some(records))
}
