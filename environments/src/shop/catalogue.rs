//! Reads the published files of WebShop: products, attributes with synthetic instructions, and human
//! instructions.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};

use lumos_tasks::python::strip;
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::price::PriceRange;
use super::product::Product;
use crate::lines::LineReader;

/// Products with longer ids are skipped.
const LONGEST_ASIN: usize = 10;

/// A product with the data from which goals are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The product.
    pub product: Product,
    /// Its price or price range.
    pub pricing: PriceRange,
    /// The synthetic instruction, if there is one, with the attributes that it asks for.
    pub instruction: Option<Instruction>,
    /// The human instructions.
    pub human_instructions: Vec<Instruction>,
}

/// A customer's instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The text of the instruction.
    pub text: String,
    /// The requested attributes.
    pub attributes: Vec<String>,
    /// The requested option values; only human instructions contain them.
    pub options: Vec<String>,
}

/// An invalid product record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("product {asin}: {problem}")]
pub struct BadProduct {
    /// The product's id, if it is known.
    asin: String,
    /// The problem.
    problem: String,
}

/// A record of the attribute file.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Attributes {
    attributes: Option<Vec<String>>,
    instruction: Option<String>,
    instruction_attributes: Option<Vec<String>>,
}

/// A record of the file of human instructions, or of a document.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct HumanInstruction {
    instruction: String,
    instruction_attributes: Vec<String>,
    instruction_options: Vec<String>,
}

/// Data from the other files, by ASIN.
#[derive(Debug, Clone, Default)]
pub(super) struct SideTables {
    /// Attributes and instructions (`items_ins_v2.json`).
    pub(super) attributes: HashMap<String, Attributes>,
    /// Human instructions (`items_human_ins.json`), if they are used.
    pub(super) human: HashMap<String, Vec<HumanInstruction>>,
}

/// Reads products one by one and skips those that the original skips: ids that are too long, `nan`, and
/// duplicates.
#[derive(Debug, Default)]
pub struct CatalogueReader {
    beside: SideTables,
    seen: HashSet<String>,
}

/// A product's record, from the raw file or from a document.
#[derive(Deserialize)]
struct Record {
    name: String,
    category: String,
    query: String,
    product_category: String,
    full_description: Option<String>,
    small_description: Value,
    pricing: Option<Value>,
    #[serde(default)]
    images: Vec<Option<String>>,
    customization_options: Option<Value>,
    /// Only documents contain these three fields.
    options: Option<Map<String, Value>>,
    #[serde(rename = "Attributes")]
    attributes: Option<Vec<String>>,
    instructions: Option<Vec<HumanInstruction>>,
}

impl CatalogueReader {
    /// A reader that adds the data of the other files.
    fn new(beside: SideTables) -> Self {
        Self { beside, seen: HashSet::new() }
    }

    /// The product of a record from the raw file (`items_shuffle.json`) or from a line of the documents that
    /// the original indexes. `None` if the original skips it.
    ///
    /// # Errors
    /// Fails if the record is not a valid product, or has a price that the original cannot parse.
    pub fn read(&mut self, record: Value) -> Result<Option<Entry>, BadProduct> {
        let record = match record {
            Value::Object(mut document) => match document.remove("product") {
                Some(product) => product,
                None => Value::Object(document),
            },
            other => other,
        };
        let asin = record.get("asin").and_then(Value::as_str).unwrap_or("without asin").to_owned();
        let bad = |problem: String| BadProduct { asin: asin.clone(), problem };
        let record: Record = serde_json::from_value(record).map_err(|error| bad(error.to_string()))?;
        if asin == "nan" || asin.chars().count() > LONGEST_ASIN || !self.seen.insert(asin.clone()) {
            return Ok(None);
        }
        let pricing = match &record.pricing {
            None | Some(Value::Null) => Some(PriceRange::of_numbers(&[])),
            Some(Value::String(text)) => PriceRange::parse(text),
            Some(Value::Array(numbers)) => numbers
                .iter()
                .map(Value::as_f64)
                .collect::<Option<Vec<f64>>>()
                .map(|numbers| PriceRange::of_numbers(&numbers)),
            Some(_) => None,
        }
        .ok_or_else(|| bad("invalid price".to_owned()))?;
        let options = match (&record.options, &record.customization_options) {
            (Some(options), _) => plain_options(options),
            (None, Some(Value::Object(options))) => raw_options(options),
            _ => Some(Vec::new()),
        }
        .ok_or_else(|| bad("invalid options".to_owned()))?;
        let bullet_points = match record.small_description {
            Value::Array(texts) => {
                texts.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>()
            }
            Value::String(text) => Some(vec![text]),
            _ => None,
        }
        .ok_or_else(|| bad("invalid features".to_owned()))?;
        let beside = self.beside.attributes.remove(&asin).unwrap_or_default();
        let human = record.instructions.or_else(|| self.beside.human.remove(&asin)).unwrap_or_default();
        let attributes =
            record.attributes.or(beside.attributes).unwrap_or_else(|| vec!["DUMMY_ATTR".to_owned()]);
        Ok(Some(Entry {
            product: Product {
                asin,
                title: record.name,
                price_tag: pricing.tag(),
                category: record.category,
                query: strip(&record.query.to_lowercase()).to_owned(),
                product_category: record.product_category,
                description: record.full_description.unwrap_or_else(|| "None".to_owned()),
                bullet_points,
                attributes,
                options,
                image: record.images.into_iter().next().flatten().unwrap_or_default(),
            },
            pricing,
            instruction: beside.instruction.map(|text| Instruction {
                text,
                attributes: beside.instruction_attributes.unwrap_or_default(),
                options: Vec::new(),
            }),
            human_instructions: human
                .into_iter()
                .map(|human| Instruction {
                    text: human.instruction,
                    attributes: human.instruction_attributes,
                    options: human.instruction_options,
                })
                .collect(),
        }))
    }
}

/// Errors of reading a catalogue.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// The products cannot be read.
    #[error("failed to read: {0}")]
    Unreadable(io::Error),
    /// The file of attributes or of instructions is invalid.
    #[error("file of attributes or instructions: {0}")]
    Attributes(serde_json::Error),
    /// A record is not a valid product.
    #[error("line {line}: {problem}")]
    Product {
        /// Its line, counted from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
}

/// The products of the sample catalogue that ships with the project, one record per line.
pub const SAMPLE_ITEMS: &str = include_str!("../../samples/webshop_items.jsonl");

/// The attributes and instructions of the sample catalogue.
const SAMPLE_ATTRIBUTES: &str = include_str!("../../samples/webshop_attributes.json");

/// The products of a catalogue with the data from which goals are made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stock {
    /// The products that search can find, in order.
    pub entries: Vec<Entry>,
    /// Number of products for sale, which come first.
    pub on_sale: usize,
}

impl Stock {
    /// Reads the stock from records. The original loads the first `limit` products (all without a limit), but
    /// indexes the first `limit` products of the whole file, which may be a few more.
    ///
    /// # Errors
    /// Fails if a record is not a valid product.
    pub(super) fn read(
        records: impl IntoIterator<Item = Value>,
        beside: SideTables,
        limit: Option<usize>,
    ) -> Result<Self, BadProduct> {
        let limit = limit.unwrap_or(usize::MAX);
        let mut reader = CatalogueReader::new(beside);
        let mut stock = Self::default();
        for (number, record) in records.into_iter().enumerate() {
            if stock.entries.len() >= limit {
                break;
            }
            stock.entries.extend(reader.read(record)?);
            if number < limit {
                stock.on_sale = stock.entries.len();
            }
        }
        Ok(stock)
    }

    /// Reads the stock from a catalogue's documents, one per line, and the file of attributes and
    /// instructions.
    ///
    /// # Errors
    /// Fails if they cannot be read, or a document is not a valid product.
    pub fn from_documents(documents: impl BufRead, attributes: impl Read) -> Result<Self, CatalogueError> {
        let attributes = serde_json::from_reader(attributes).map_err(CatalogueError::Attributes)?;
        let beside = SideTables { attributes, ..SideTables::default() };
        let mut reader = CatalogueReader::new(beside);
        let mut stock = Self::default();
        for line in LineReader::new(documents) {
            let (number, line) = line.map_err(CatalogueError::Unreadable)?;
            let line_number = usize::try_from(number).unwrap_or(usize::MAX);
            let bad = |problem: String| CatalogueError::Product { line: line_number, problem };
            let record = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
            stock.entries.extend(reader.read(record).map_err(|error| bad(error.to_string()))?);
        }
        stock.on_sale = stock.entries.len();
        Ok(stock)
    }

    /// Reads the stock from the three raw files of a catalogue; the original loads the first `limit`
    /// products.
    ///
    /// # Errors
    /// Fails if they cannot be read, or a record is not a valid product.
    pub fn from_raw(
        products: impl Read,
        attributes: impl Read,
        human: impl Read,
        limit: Option<usize>,
    ) -> Result<Self, CatalogueError> {
        let products: Vec<Value> =
            serde_json::from_reader(products).map_err(|error| CatalogueError::Unreadable(error.into()))?;
        let attributes = serde_json::from_reader(attributes).map_err(CatalogueError::Attributes)?;
        let human = serde_json::from_reader(human).map_err(CatalogueError::Attributes)?;
        Self::read(products, SideTables { attributes, human }, limit)
            .map_err(|error| CatalogueError::Product { line: 1, problem: error.to_string() })
    }

    /// The sample catalogue that ships with the project.
    ///
    /// # Errors
    /// Never fails in practice: a test reads it.
    pub fn sample() -> Result<Self, CatalogueError> {
        Self::from_documents(SAMPLE_ITEMS.as_bytes(), SAMPLE_ATTRIBUTES.as_bytes())
    }

    /// The products for sale, from which goals are made.
    pub fn for_sale(&self) -> &[Entry] {
        self.entries.get(..self.on_sale).unwrap_or_default()
    }
}

type Options = Vec<(String, Vec<String>)>;

/// Options in the format of a document.
fn plain_options(options: &Map<String, Value>) -> Option<Options> {
    let group = |(name, values): (&String, &Value)| {
        let values = values.as_array()?.iter().map(|value| value.as_str().map(str::to_owned));
        Some((name.clone(), values.collect::<Option<_>>()?))
    };
    options.iter().map(group).collect()
}

/// Options in the format of the raw file. Groups whose names differ only in case are merged: the last values
/// count.
fn raw_options(options: &Map<String, Value>) -> Option<Options> {
    let mut groups: Options = Vec::new();
    for (name, values) in options {
        if values.is_null() {
            continue;
        }
        let value = |value: &Value| {
            let text = value.get("value")?.as_str()?;
            Some(strip(text).replace('/', " | ").to_lowercase())
        };
        let values: Vec<String> = values.as_array()?.iter().map(value).collect::<Option<_>>()?;
        let name = name.to_lowercase();
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = values,
            None => groups.push((name, values)),
        }
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(asin: &str) -> Value {
        json!({
            "asin": asin, "name": "Lamp", "category": "garden", "query": " Table Lamp ",
            "product_category": "Home › Lamps", "full_description": "It shines.", "small_description": "Bright",
            "pricing": "$5 - $7.50", "images": ["http://x/1.jpg"],
            "customization_options": {"Color": [{"value": " Red/Blue "}], "Size": null, "COLOR": [{"value": "B"}]},
        })
    }

    #[test]
    fn a_raw_record_becomes_a_product() {
        let mut reader = CatalogueReader::default();
        let entry = reader.read(record("B0")).unwrap().unwrap();
        assert_eq!(entry.product.options, [("color".to_owned(), vec!["b".to_owned()])]);
        assert_eq!(entry.product.query, "table lamp");
        assert_eq!(entry.product.bullet_points, ["Bright"]);
        assert_eq!(entry.product.attributes, ["DUMMY_ATTR"]);
        assert_eq!(entry.product.price_tag, "$5.0 to $7.5");
        assert_eq!(entry.product.indexed_text(), "lamp it shines. bright color: b");
        assert!(reader.read(record("B0")).unwrap().is_none());
        assert!(reader.read(record("nan")).unwrap().is_none());
        assert!(reader.read(record("B0123456789")).unwrap().is_none());
        assert!(reader.read(json!({"asin": "B1"})).is_err());
    }

    #[test]
    fn the_small_catalogue_is_one() {
        let stock = Stock::sample().unwrap();
        assert_eq!((stock.entries.len(), stock.on_sale), (24, 24));
        let (prices, goals) = crate::shop::draw(stock.for_sale(), crate::shop::GoalMode::Synthetic);
        assert_eq!(prices.len(), 24);
        assert!(goals.len() > 40 && goals.iter().all(|goal| !goal.attributes.is_empty()));
        assert!(stock.entries.iter().all(|entry| entry.product.asin.len() == 10));
    }

    #[test]
    fn an_option_is_trimmed_split_at_strokes_and_lowered() {
        let mut raw = record("B0");
        raw["customization_options"] = json!({"Color": [{"value": " Red/Blue "}], "Size": []});
        let entry = CatalogueReader::default().read(raw).unwrap().unwrap();
        let expected = [("color".to_owned(), vec!["red | blue".to_owned()]), ("size".to_owned(), Vec::new())];
        assert_eq!(entry.product.options, expected);
    }
}
