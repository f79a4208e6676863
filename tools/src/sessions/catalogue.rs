//! Sources of a shop's products: the project's small catalogue, a folder with the published files, or a
//! folder with a prebuilt index.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_environments::lines;
use lumos_environments::shop::{
    Approximation, Entry, GoalMode, KnownNouns, NOUNS_VERSION, Shop, ShopBuilder, Stock, VERSION, draw,
};
use lumos_models::hash_file;
use lumos_tasks::ContentHash;
use memmap2::Mmap;
use serde::Deserialize;

use crate::browser::{BrowserName, UnknownBrowser};

/// Files of the published catalogue: documents and attributes.
const DOCUMENTS: &str = "items_1000_documents.jsonl";
const ATTRIBUTES: &str = "items_ins_v2_1000.json";

/// Files of an index.
const RECORDS: &str = "products.bin";
const TABLES: &str = "tables.bin";
const INDEX: &str = "index.bin";

/// Version of the code that determines the shop's replies.
pub(crate) const SHOP_VERSION: u32 = VERSION * 100 + NOUNS_VERSION;

/// Files that a shop is opened from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShopFiles {
    /// Folder of the catalogue. Default: the project's small catalogue.
    pub folder: Option<PathBuf>,
    /// JSON Lines file with `title` and `nouns`, from a better tagger than the built-in one.
    pub nouns: Option<PathBuf>,
}

/// Separator of the folder and the file of nouns in a backend's name.
const NOUNS: &str = ",nouns=";

/// Separator of a WebDriver server's address and the folder in a backend's name. The address contains colons.
const FOLDER: &str = ",folder=";

impl ShopFiles {
    /// Parses the part of a backend's name after `memory`: empty, `:<folder>`, `,nouns=<file>`, or both.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (folder, nouns) = split(text, NOUNS);
        let folder = match folder.strip_prefix(':') {
            Some(folder) => Some(PathBuf::from(folder)),
            None if folder.is_empty() => None,
            None => return None,
        };
        Some(Self { folder, nouns })
    }

    /// Returns the name of the backend with these files.
    pub fn backend(&self) -> String {
        format!("memory{}", self.suffix(":"))
    }

    /// The part of a backend's name that names the files.
    fn suffix(&self, before_folder: &str) -> String {
        let part = |before: &str, path: &Option<PathBuf>| match path {
            Some(path) => format!("{before}{}", path.display()),
            None => String::new(),
        };
        part(before_folder, &self.folder) + &part(NOUNS, &self.nouns)
    }

    /// Parses the name of a browser backend: `chromedriver`, followed by the same as `memory`, or the address
    /// of a WebDriver server, followed by `,folder=<folder>` and `,nouns=<file>`.
    pub(crate) fn parse_in_browser(name: &str) -> Result<(BrowserName, Self), UnknownBrowser> {
        if let Some(files) = name.strip_prefix("chromedriver").and_then(Self::parse) {
            return Ok((BrowserName::Chromedriver, files));
        }
        let (name, nouns) = split(name, NOUNS);
        let (name, folder) = split(name, FOLDER);
        Ok((name.parse()?, Self { folder, nouns }))
    }

    /// Returns the name of the backend that uses these files in a browser.
    pub fn backend_in(&self, browser: &BrowserName) -> String {
        let before_folder = match browser {
            BrowserName::Chromedriver => ":",
            BrowserName::Remote(_) => FOLDER,
        };
        format!("{browser}{}", self.suffix(before_folder))
    }

    /// Returns a backend's name with a file of nouns added.
    pub fn with_nouns(backend: &str, nouns: &Path) -> String {
        format!("{backend}{NOUNS}{}", nouns.display())
    }

    /// Returns `#` and a hash of the files, or an empty string if there are none. Blocks.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn content(&self) -> io::Result<String> {
        let in_folder = |folder: &PathBuf| files_of(folder).iter().map(|name| folder.join(name)).collect();
        let mut paths: Vec<PathBuf> = self.folder.as_ref().map(in_folder).unwrap_or_default();
        paths.extend(self.nouns.clone());
        let hash = |path: &PathBuf| hash_file(path).map_err(|error| named(path, &error));
        let hashes = paths.iter().map(hash).collect::<io::Result<Vec<_>>>()?;
        if hashes.is_empty() {
            return Ok(String::new());
        }
        Ok(format!("#{}", ContentHash::of_json(&hashes).short()))
    }

    /// Opens the shop. Blocks: reads and indexes the products, unless an index exists.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub fn open(&self) -> io::Result<Shop> {
        match &self.folder {
            Some(folder) if folder.join(INDEX).is_file() => open_index(folder),
            Some(folder) => {
                let opened = |name: &str| {
                    let path = folder.join(name);
                    File::open(&path).map(BufReader::new).map_err(|error| named(&path, &error))
                };
                let stock = Stock::from_documents(opened(DOCUMENTS)?, opened(ATTRIBUTES)?);
                Ok(of_stock(&stock.map_err(|error| named(folder, &error))?))
            }
            None => Ok(of_stock(&Stock::sample().map_err(io::Error::other)?)),
        }
    }

    /// Returns a tagger that uses the nouns of the file and the built-in approximation for other titles.
    /// Blocks.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is invalid.
    pub fn tagger(&self) -> io::Result<KnownNouns<Approximation>> {
        #[derive(Deserialize)]
        struct Line {
            title: String,
            nouns: Vec<String>,
        }
        let mut known = HashMap::new();
        if let Some(path) = &self.nouns {
            for line in lines::open(path).map_err(|error| named(path, &error))? {
                let (number, line) = line.map_err(|error| named(path, &error))?;
                let Line { title, nouns } = serde_json::from_str(&line)
                    .map_err(|error| named(path, &format!("line {number}: {error}")))?;
                known.insert(title, nouns);
            }
        }
        Ok(KnownNouns::new(known, Approximation))
    }
}

/// Splits a path off the end of a name.
fn split<'a>(name: &'a str, before_path: &str) -> (&'a str, Option<PathBuf>) {
    match name.split_once(before_path) {
        Some((name, path)) => (name, Some(PathBuf::from(path))),
        None => (name, None),
    }
}

fn of_stock(stock: &Stock) -> Shop {
    let (prices, _) = draw(stock.for_sale(), GoalMode::Synthetic);
    Shop::new(stock, &prices)
}

fn files_of(folder: &Path) -> &'static [&'static str] {
    if folder.join(INDEX).is_file() { &[RECORDS, TABLES, INDEX] } else { &[DOCUMENTS, ATTRIBUTES] }
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

/// Opens an index by mapping its files into memory.
fn open_index(folder: &Path) -> io::Result<Shop> {
    let mapped = |name: &str| {
        let path = folder.join(name);
        map(&path).map(Arc::new).map_err(|error| named(&path, &error))
    };
    Shop::open(mapped(RECORDS)?, mapped(TABLES)?, mapped(INDEX)?).map_err(|error| named(folder, &error))
}

/// Builds an index in a folder from a stream of products, for catalogues that do not fit into memory. Returns
/// the number of products. The files are renamed into place when they are complete.
///
/// # Errors
/// If the files cannot be written, or `entries` returns an error.
pub fn build_index(folder: &Path, entries: impl IntoIterator<Item = io::Result<Entry>>) -> io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let beginning = |name: &str| folder.join(format!("{name}.part"));
    let records = BufWriter::new(File::create(beginning(RECORDS))?);
    let mut builder = ShopBuilder::new(records);
    let mut count = 0;
    for entry in entries {
        builder.add(&entry?)?;
        count += 1;
    }
    let (records, tables, index) = builder.build()?;
    records.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    for (name, bytes) in [(TABLES, tables), (INDEX, index)] {
        let mut file = File::create(beginning(name))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
    }
    // The index is removed first and renamed last: its presence shows that the other files are complete.
    match std::fs::remove_file(folder.join(INDEX)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for name in [RECORDS, TABLES, INDEX] {
        std::fs::rename(beginning(name), folder.join(name))?;
    }
    Ok(count)
}

/// Reads the entries of a JSON Lines file of documents.
///
/// # Errors
/// If the file cannot be opened.
pub fn documents(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Entry>>> {
    let lines = lines::open(path).map_err(|error| named(path, &error))?;
    let mut reader = lumos_environments::shop::CatalogueReader::default();
    let path = path.to_owned();
    Ok(lines.filter_map(move |line| {
        let entry = line.map_err(|error| error.to_string()).and_then(|(number, line)| {
            let record = serde_json::from_str(&line).map_err(|error| format!("line {number}: {error}"))?;
            reader.read(record).map_err(|error| format!("line {number}: {error}"))
        });
        entry.map_err(|error| named(&path, &error)).transpose()
    }))
}

/// Maps a file into memory, read-only.
#[allow(unsafe_code)]
fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the mapping is read-only. If another process truncates the file, this one is terminated by
    // SIGBUS; if bytes are changed, product data changes, but every read is bounds-checked. An index is
    // written under another name and renamed into place, and is never written while it is read.
    unsafe { Mmap::map(&file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for text in ["", ":a/b", ",nouns=n.jsonl", ":a,nouns=n.jsonl"] {
            let files = ShopFiles::parse(text).unwrap();
            assert_eq!(files.backend(), format!("memory{text}"));
        }
        assert_eq!(ShopFiles::parse("x"), None);
        for text in [
            "chromedriver",
            "chromedriver:a/b,nouns=n.jsonl",
            "http://grid:4444",
            "http://grid:4444,folder=a:b,nouns=n.jsonl",
            "http://grid:4444/wd/hub,nouns=n.jsonl",
        ] {
            let (browser, files) = ShopFiles::parse_in_browser(text).unwrap();
            assert_eq!(files.backend_in(&browser), text);
        }
        for text in ["chromedriverx", "firefox", "http://user:word@grid:4444,folder=a"] {
            assert!(ShopFiles::parse_in_browser(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_index_answers_as_the_catalogue_does() {
        let folder = tempfile::tempdir().unwrap();
        let stock = Stock::sample().unwrap();
        let count = build_index(folder.path(), stock.entries.iter().cloned().map(Ok)).unwrap();
        assert_eq!(count, 24);
        let files = ShopFiles { folder: Some(folder.path().to_owned()), nouns: None };
        let (mapped, fresh) = (files.open().unwrap(), ShopFiles::default().open().unwrap());
        for query in ["linen shirt", "rain", "non slip mat for yoga", "the"] {
            assert_eq!(mapped.ranking(query), fresh.ranking(query));
        }
        assert_eq!(mapped.shelf().price(3), fresh.shelf().price(3));
        let content = files.content().unwrap();
        assert!(content.len() > 8);
        let records = folder.path().join(RECORDS);
        std::fs::write(&records, b"short").unwrap();
        assert!(files.open().unwrap_err().to_string().contains("damaged"));
        assert_ne!(files.content().unwrap(), content, "the hash covers the products");
    }

    #[test]
    fn an_index_that_is_not_rebuilt_completely_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let stock = Stock::sample().unwrap();
        let build = || build_index(folder.path(), stock.entries.iter().cloned().map(Ok));
        build().unwrap();
        // Replacing the tables fails.
        let tables = folder.path().join(TABLES);
        std::fs::remove_file(&tables).unwrap();
        std::fs::create_dir(&tables).unwrap();
        assert!(build().is_err());
        assert!(!folder.path().join(INDEX).exists());
    }
}
