//! Creates items from products: goals are generated from the catalogue, as the original does on startup.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use lumos_environments::shop::{GoalMode, Stock, draw};

use crate::benchmark::BenchmarkDescription;
use crate::error::DataError;
use crate::loading::{Builder, DataSource, Flaw, Items, Located};

/// Name of the file of documents.
const DOCUMENTS: &str = "items_1000_documents.jsonl";

/// Name of the file with attributes and instructions.
const ATTRIBUTES: &str = "items_ins_v2_1000.json";

/// Opens a catalogue as a stream of goals.
#[allow(clippy::needless_pass_by_value)] // signature of `BenchmarkDescription::open`
pub(super) fn open(about: &'static BenchmarkDescription, source: DataSource) -> Result<Items, DataError> {
    let benchmark = about.name;
    let remedy = || {
        format!(
            "place the files of {benchmark} as in docs/webshop.md, and set the data folder with `--data PATH`"
        )
    };
    let (name, stock) = match &source {
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
    let mut builder = Builder::new(about, name);
    Ok(Box::new(goals.into_iter().map(move |goal| {
        let content = serde_json::to_value(&goal);
        let content = content.map_err(|error| Flaw::Json { line: 0, found: error.to_string() });
        builder.build(Located { line: 0, content })
    })))
}

/// Reads the documents of a file, and the attributes next to it.
fn documents(path: &Path) -> Result<Stock, String> {
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
    let [products, attributes, human] = ["items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"]
        .map(|name| opened(&folder.join(name)));
    Stock::from_raw(products?, attributes?, human?, Some(1000)).map_err(|error| error.to_string())
}

fn opened(path: &Path) -> Result<BufReader<File>, String> {
    File::open(path).map(BufReader::new).map_err(|error| format!("{}: {error}", path.display()))
}
