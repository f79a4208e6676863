//! [`Shop`]: the products on a shelf with their search index.
//!
//! [`ShopBuilder`] builds a shop product by product, for catalogues that do not fit in memory.
//! [`SearchEngine`] is the interface through which visits search.

use std::io;
use std::sync::Arc;

use lumos_tasks::python::strip;
use thiserror::Error;

use super::catalogue::{Entry, Stock};
use super::product_store::{ProductStore, ProductStoreBuilder};
use super::python_random::PythonRandom;
use super::search::{ProductIndex, ProductIndexBuilder};
use super::sections::{Bytes, Damaged};

/// Maximum number of products that a search finds.
const MOST_FOUND: usize = 50;

/// Incremented when the shop's pages or rewards change, so that results with the old and new ones are not
/// mixed.
pub const VERSION: u32 = 2;

/// An exception with which the original stops; the episode ends there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{exception}: {message}")]
pub struct Raised {
    /// The exception's class.
    pub exception: &'static str,
    /// The exception's message.
    pub message: String,
}

/// Finds products.
pub trait SearchEngine: Send + Sync {
    /// Indices of the products found for keywords, best first.
    ///
    /// # Errors
    /// Fails where the original raises.
    fn search(&self, keywords: &[&str]) -> Result<Vec<u32>, Raised>;
}

/// Products and their search index.
#[derive(Debug)]
pub struct Shop {
    shelf: ProductStore,
    index: ProductIndex,
}

impl Shop {
    /// Creates a shop from products and their prices in dollars.
    pub fn new(stock: &Stock, prices: &[f64]) -> Self {
        let mut shelf = ProductStoreBuilder::new(Vec::new());
        let mut index = ProductIndexBuilder::default();
        for (position, entry) in stock.entries.iter().enumerate() {
            let price = prices.get(position).copied().unwrap_or_default();
            shelf.add(&entry.product, price).expect("writing to a vector cannot fail");
            index.add(&entry.product.indexed_text());
        }
        let (records, tables) = shelf.build(stock.on_sale).expect("writing to a vector cannot fail");
        Self::open(Arc::new(records), Arc::new(tables), Arc::new(index.build()))
            .expect("a shop that was just built is valid")
    }

    /// Opens a shop from the bytes that [`ShopBuilder`] wrote.
    ///
    /// # Errors
    /// Fails if the bytes are not a shop's.
    pub fn open(records: Bytes, tables: Bytes, index: Bytes) -> Result<Self, Damaged> {
        let (shelf, index) = (ProductStore::open(records, tables)?, ProductIndex::open(index)?);
        if shelf.len() != index.len() {
            return Err(Damaged);
        }
        Ok(Self { shelf, index })
    }

    /// The products.
    pub fn shelf(&self) -> &ProductStore {
        &self.shelf
    }

    /// The 50 best products of the index for a text with their scores, best first.
    fn hits(&self, text: &str) -> Result<Vec<(u32, f32)>, Raised> {
        let by_asin = |left, right| self.shelf.asin(left).cmp(&self.shelf.asin(right));
        let hits = self.index.search(text, MOST_FOUND, by_asin);
        hits.map_err(|error| Raised { exception: "TooManyClauses", message: error.to_string() })
    }

    /// The products found for a text, best first: the 50 best of the index, restricted to those for sale.
    fn found(&self, text: &str) -> Result<Vec<u32>, Raised> {
        let positions = self.hits(text)?.into_iter().map(|(position, _)| position);
        Ok(positions.filter(|position| (*position as usize) < self.shelf.on_sale()).collect())
    }

    /// The best products for a text with their scores, including those not for sale.
    ///
    /// # Errors
    /// Fails if the text has too many distinct words.
    pub fn ranking(&self, text: &str) -> Result<Vec<(&str, f32)>, Raised> {
        let hits = self.hits(text)?.into_iter();
        Ok(hits.map(|(position, score)| (self.shelf.asin(position).unwrap_or(""), score)).collect())
    }
}

impl SearchEngine for Shop {
    /// As upstream `get_top_n_product_from_keywords`. Where that draws 50 products at random, this returns
    /// the same ones for the same keywords.
    fn search(&self, keywords: &[&str]) -> Result<Vec<u32>, Raised> {
        let rest = || keywords.get(1..).unwrap_or_default().join(" ");
        match keywords.first().copied() {
            Some("<r>") => {
                let seed = rest().bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
                let all: Vec<u32> = (0..u32::try_from(self.shelf.on_sale()).unwrap_or(u32::MAX)).collect();
                Ok(PythonRandom::new(seed).sample(&all, MOST_FOUND))
            }
            Some("<a>") => Err(Raised {
                exception: "TypeError",
                message: "products are not listed by attribute".to_owned(),
            }),
            Some("<c>") => match keywords.get(1) {
                Some(category) => Ok(self.shelf.of_category(strip(category))),
                None => Err(Raised { exception: "IndexError", message: "no category is named".to_owned() }),
            },
            Some("<q>") => Ok(self.shelf.of_query(strip(&rest()))),
            _ => self.found(&keywords.join(" ")),
        }
    }
}

/// Builds a shop product by product and streams its records to a writer, for catalogues that do not fit in
/// memory.
#[derive(Debug)]
pub struct ShopBuilder<W> {
    shelf: ProductStoreBuilder<W>,
    index: ProductIndexBuilder,
    random: PythonRandom,
}

impl<W: io::Write> ShopBuilder<W> {
    /// An empty shop whose records are written to `records`. Prices are drawn as in the original.
    pub fn new(records: W) -> Self {
        Self {
            shelf: ProductStoreBuilder::new(records),
            index: ProductIndexBuilder::default(),
            random: PythonRandom::new(super::goal::DRAWING_SEED),
        }
    }

    /// Adds the next product.
    ///
    /// # Errors
    /// Fails if its record cannot be written.
    pub fn add(&mut self, entry: &Entry) -> io::Result<()> {
        let price = entry.pricing.draw(&mut self.random);
        self.index.add(&entry.product.indexed_text());
        self.shelf.add(&entry.product, price)
    }

    /// Returns the records' writer, the tables and the index, for [`Shop::open`].
    ///
    /// # Errors
    /// Fails if the records cannot be written.
    pub fn build(self) -> io::Result<(W, Vec<u8>, Vec<u8>)> {
        let count = self.index.len();
        let (records, tables) = self.shelf.build(count)?;
        Ok((records, tables, self.index.build()))
    }
}
