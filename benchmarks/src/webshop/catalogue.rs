//! Creates items from products: goals are generated from the catalogue, as the original does on startup.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lumos_environments::shop::{GoalMode, Stock, draw};
use lumos_tasks::{ContentHash, Item, ItemId};
use serde_json::Value;

use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, RecordError, single};

/// Name of the file of documents.
const DOCUMENTS: &str = "items_1000_documents.jsonl";

/// Name of the file with attributes and instructions.
const ATTRIBUTES: &str = "items_ins_v2_1000.json";

/// Opens a catalogue as a stream of goals.
pub(super) fn open(
    benchmark: &'static str,
    source: &DataSource,
    read: impl Fn(&Value) -> Result<Content, RecordError> + Send + 'static,
) -> Result<Items, DataError> {
    let remedy = || {
        format!(
            "place the files of {benchmark} as in docs/webshop.md, and set the data folder with `--data PATH`"
        )
    };
    let (name, stock) = match source {
        DataSource::Samples => {
            (format!("built-in samples of {benchmark}"), Stock::sample().map_err(|error| error.to_string()))
        }
        DataSource::File(path) => (path.display().to_string(), documents(path)),
    };
    let stock =
        stock.map_err(|reason| DataError::Unreadable { file: name.clone(), reason, remedy: remedy() })?;
    let (_, goals) = draw(stock.for_sale(), GoalMode::Synthetic);
    if goals.is_empty() {
        return Err(DataError::Empty { file: name, remedy: remedy() });
    }
    let mut seen: HashMap<ContentHash, u32> = HashMap::new();
    Ok(Box::new(goals.into_iter().enumerate().map(move |(index, goal)| {
        let bad = |field: &'static str, expected: String, found: String| DataError::Record {
            file: name.clone(),
            line: 0,
            field: Some(field),
            expected,
            found,
        };
        let record = serde_json::to_value(&goal)
            .map_err(|error| bad("goal", "a goal".to_owned(), error.to_string()))?;
        let item = single(&record, &read).map_err(|error| bad(error.field, error.expected, error.found))?;
        let occurrences = seen.entry(item.id.content.clone()).or_default();
        let id = ItemId { occurrence: *occurrences, ..item.id };
        *occurrences += 1;
        Ok(Item { id, index: index as u64, ..item })
    })))
}

/// Reads the documents of a file, and the attributes next to it.
fn documents(path: &Path) -> Result<Stock, String> {
    let opened = |path: &Path| {
        File::open(path).map(BufReader::new).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (documents, attributes) = (opened(path)?, opened(&path.with_file_name(ATTRIBUTES))?);
    Stock::from_documents(documents, attributes).map_err(|error| error.to_string())
}

/// Reads the catalogue in a folder: documents with their attributes, or the three raw files, of which the
/// original loads the first thousand products.
pub(crate) fn stock_in(folder: &Path) -> Result<Stock, String> {
    let path = folder.join(DOCUMENTS);
    if path.is_file() {
        return documents(&path);
    }
    let opened = |name: &str| {
        let path = folder.join(name);
        File::open(&path).map(BufReader::new).map_err(|error| format!("{}: {error}", path.display()))
    };
    let [products, attributes, human] =
        [opened("items_shuffle.json")?, opened("items_ins_v2.json")?, opened("items_human_ins.json")?];
    Stock::from_raw(products, attributes, human, Some(1000)).map_err(|error| error.to_string())
}
