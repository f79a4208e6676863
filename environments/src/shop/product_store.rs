//! The products of a shop as bytes: consecutive records, and tables to find them.
//!
//! `ProductStoreBuilder` writes both; [`ProductStore`] reads products in place by index, ASIN, department or query. The
//! first products are for sale; the others can only be found by search.

use std::io::{self, Write};

use super::product::{Product, ProductView};
use super::sections::{Bytes, Damaged, Sections, Writer, find};

/// The first bytes of the tables.
const MAGIC: [u8; 8] = *b"lumoshf1";

/// Products by index and by ASIN.
pub struct ProductStore {
    records: Bytes,
    tables: Bytes,
    sections: Sections,
    len: usize,
    on_sale: usize,
}

impl std::fmt::Debug for ProductStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shelf").field("products", &self.len).finish_non_exhaustive()
    }
}

/// The sections of the tables.
const TOTALS: usize = 0;
const ENDS: usize = 1;
const PRICES: usize = 2;
const BY_ASIN: usize = 3;
const CATEGORIES: usize = 4;
const QUERIES: usize = 5;

impl ProductStore {
    /// Opens a shelf; reads only the table of its sections.
    ///
    /// # Errors
    /// Fails if the bytes are not a shelf, or are truncated.
    pub(super) fn open(records: Bytes, tables: Bytes) -> Result<Self, Damaged> {
        let held = (*tables).as_ref();
        let sections = Sections::read(held, MAGIC, 6)?;
        let len = sections.numbers(held, ENDS).len();
        let on_sale = sections.numbers(held, TOTALS).get(0).ok_or(Damaged)?;
        let end = sections.numbers(held, ENDS).get(len.wrapping_sub(1)).unwrap_or(0);
        let whole = end == (*records).as_ref().len() as u64
            && [PRICES, CATEGORIES, QUERIES]
                .iter()
                .all(|section| sections.numbers(held, *section).len() == len)
            && sections.small_numbers(held, BY_ASIN).len() == len;
        if !whole {
            return Err(Damaged);
        }
        let on_sale = usize::try_from(on_sale).unwrap_or(usize::MAX).min(len);
        Ok(Self { records, tables, sections, len, on_sale })
    }

    /// Number of products, including those that are only searchable.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of products for sale, which come first. The original's index contains more.
    pub fn on_sale(&self) -> usize {
        self.on_sale
    }

    /// The product at an index.
    pub(super) fn product(&self, position: u32) -> Option<ProductView<'_>> {
        postcard::from_bytes(self.record(position)?).ok()
    }

    /// The ASIN of the product at an index.
    pub(super) fn asin(&self, position: u32) -> Option<&str> {
        postcard::take_from_bytes(self.record(position)?).ok().map(|(asin, _)| asin)
    }

    /// The price of the product at an index, in dollars.
    pub fn price(&self, position: u32) -> Option<f64> {
        let prices = self.sections.numbers((*self.tables).as_ref(), PRICES);
        prices.get(position as usize).map(f64::from_bits)
    }

    /// The index of the product with an ASIN, if it is for sale.
    pub fn find(&self, asin: &str) -> Option<u32> {
        let by_asin = self.sections.small_numbers((*self.tables).as_ref(), BY_ASIN);
        let place = find(by_asin.len(), |place| Some(self.asin(by_asin.get(place)?)?.cmp(asin)))?;
        by_asin.get(place).filter(|position| (*position as usize) < self.on_sale)
    }

    /// The products for sale in a department.
    pub(super) fn of_category(&self, category: &str) -> Vec<u32> {
        self.having(CATEGORIES, category, |product| product.category)
    }

    /// The products for sale with this query.
    pub(super) fn of_query(&self, query: &str) -> Vec<u32> {
        self.having(QUERIES, query, |product| product.query)
    }

    fn having(&self, section: usize, text: &str, of: for<'a> fn(&ProductView<'a>) -> &'a str) -> Vec<u32> {
        let codes = self.sections.numbers((*self.tables).as_ref(), section);
        let wanted = code(text);
        let positions = (0..self.on_sale).filter(|position| codes.get(*position) == Some(wanted));
        positions
            .filter_map(|position| u32::try_from(position).ok())
            .filter(|position| self.product(*position).is_some_and(|product| of(&product) == text))
            .collect()
    }

    fn record(&self, position: u32) -> Option<&[u8]> {
        let ends = self.sections.numbers((*self.tables).as_ref(), ENDS);
        ends.range(position as usize, (*self.records).as_ref())
    }
}

/// Builds a [`ProductStore`].
#[derive(Debug)]
pub(super) struct ProductStoreBuilder<W> {
    records: W,
    end: u64,
    ends: Vec<u64>,
    prices: Vec<u64>,
    asins: Vec<Box<str>>,
    categories: Vec<u64>,
    queries: Vec<u64>,
}

impl<W: Write> ProductStoreBuilder<W> {
    /// An empty shelf whose records are written to `records`.
    pub(super) fn new(records: W) -> Self {
        Self {
            records,
            end: 0,
            ends: Vec::new(),
            prices: Vec::new(),
            asins: Vec::new(),
            categories: Vec::new(),
            queries: Vec::new(),
        }
    }

    /// Adds the next product with its price in dollars.
    ///
    /// # Errors
    /// Fails if its record cannot be written.
    pub(super) fn add(&mut self, product: &Product, price: f64) -> io::Result<()> {
        let record = postcard::to_stdvec(product).map_err(io::Error::other)?;
        self.records.write_all(&record)?;
        self.end += record.len() as u64;
        self.ends.push(self.end);
        self.prices.push(price.to_bits());
        self.asins.push(product.asin.as_str().into());
        self.categories.push(code(&product.category));
        self.queries.push(code(&product.query));
        Ok(())
    }

    /// Returns the records' writer and the tables after all products were added; the first `on_sale` are for
    /// sale.
    ///
    /// # Errors
    /// Fails if the records cannot be written.
    pub(super) fn build(mut self, on_sale: usize) -> io::Result<(W, Vec<u8>)> {
        self.records.flush()?;
        let mut by_asin: Vec<u32> = (0..u32::try_from(self.asins.len()).unwrap_or(u32::MAX)).collect();
        by_asin.sort_by_key(|position| self.asins.get(*position as usize));
        let mut writer = Writer::new(MAGIC);
        writer.section([(on_sale as u64).to_le_bytes()]);
        writer.section(self.ends.into_iter().map(u64::to_le_bytes));
        writer.section(self.prices.into_iter().map(u64::to_le_bytes));
        writer.section(by_asin.into_iter().map(u32::to_le_bytes));
        writer.section(self.categories.into_iter().map(u64::to_le_bytes));
        writer.section(self.queries.into_iter().map(u64::to_le_bytes));
        Ok((self.records, writer.finish()))
    }
}

/// A hash for fast comparison of texts (FNV-1a).
fn code(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |code, byte| (code ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
