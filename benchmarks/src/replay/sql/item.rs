//! The item of a recorded episode, compared with the data set where it is here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use super::{SqlRow, same};
use crate::benchmark::Benchmark;
use crate::intercode_sql::IntercodeSql;
use crate::loading::DataSource;

/// The data set's records, by their place.
type Records = Arc<Vec<Value>>;

impl SqlRow {
    /// The database, the question and the gold query must be those of the data set's record.
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

/// The records of the data set that belongs to a folder of recorded cases, read once; `None` where it is not here.
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
