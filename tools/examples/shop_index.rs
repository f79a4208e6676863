//! Builds the index of a large catalogue, once, and measures it.
//!
//! `cargo run --release -p lumos-worker --example shop_index -- FOLDER` makes up 1.18 million products, as many as the
//! full catalogue has; `… FOLDER --products 100000` fewer; `… FOLDER --documents FILE` indexes the documents of a file.
//! `--tool shop=memory:FOLDER` opens it then.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lumos_environments::shop::{Entry, PriceRange, Product, SearchEngine};
use lumos_tools::sessions::catalogue::{ShopFiles, build_index, documents};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Products of the full catalogue.
const FULL: usize = 1_181_430;

/// Words that products are made of: a few are everywhere, most are rare, as in English.
const VOCABULARY: usize = 60_000;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().ok_or_else(|| io::Error::other("name a folder"))?);
    let started = Instant::now();
    let count = match arguments.get(1).map(String::as_str) {
        Some("--documents") => build_index(&folder, documents(Path::new(&given(&arguments)?))?)?,
        Some("--products") => {
            let count = given(&arguments)?.parse().map_err(io::Error::other)?;
            build_index(&folder, made_up(count).map(Ok))?
        }
        Some(other) => return Err(io::Error::other(format!("unknown option {other}"))),
        None => build_index(&folder, made_up(FULL).map(Ok))?,
    };
    println!("{count} products indexed in {:.1} s, {} MB at the most", seconds(started), resident("VmHWM"));
    let size: u64 =
        std::fs::read_dir(&folder)?.map(|file| Ok(file?.metadata()?.len())).sum::<io::Result<u64>>()?;
    println!("{} MB on disk", size >> 20);
    measure(&folder)
}

fn given(arguments: &[String]) -> io::Result<String> {
    arguments.get(2).cloned().ok_or_else(|| io::Error::other("the option needs a value"))
}

/// Opens the index and searches it.
fn measure(folder: &Path) -> io::Result<()> {
    let before = resident("VmRSS");
    let started = Instant::now();
    let shop = ShopFiles { folder: Some(folder.to_owned()), nouns: None }.open()?;
    println!("opened in {:.3} s", seconds(started));
    let mut random = StdRng::seed_from_u64(1);
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let query = words(&mut random, 20);
            let keywords: Vec<&str> = query.split(' ').collect();
            let started = Instant::now();
            let found = shop.search(&keywords);
            assert!(found.is_ok());
            started.elapsed()
        })
        .collect();
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    println!("queries of 20 words: median {:.1} ms, 95 % below {:.1} ms", at(50), at(95));
    println!(
        "{} MB resident before it was opened, {} MB now (mapped pages included)",
        before,
        resident("VmRSS")
    );
    Ok(())
}

fn made_up(count: usize) -> impl Iterator<Item = Entry> {
    let mut random = StdRng::seed_from_u64(0);
    (0..count).map(move |number| {
        let options = vec![
            ("color".to_owned(), vec!["red".to_owned(), "navy blue".to_owned(), words(&mut random, 2)]),
            ("size".to_owned(), vec!["small".to_owned(), "large".to_owned()]),
        ];
        let bullet_points = (0..5).map(|_| words(&mut random, 15)).collect();
        Entry {
            product: Product {
                asin: format!("S{number:09}"),
                title: words(&mut random, 14),
                price_tag: "$20.0".to_owned(),
                category: "garden".to_owned(),
                query: words(&mut random, 2),
                product_category: "Home › Made up".to_owned(),
                description: words(&mut random, 60),
                bullet_points,
                attributes: vec![words(&mut random, 2), words(&mut random, 2)],
                options,
                image: String::new(),
            },
            pricing: PriceRange::Range(10.0, 30.0),
            instruction: None,
            human_instructions: Vec::new(),
        }
    })
}

/// So many words, after Zipf's law.
fn words(random: &mut StdRng, count: usize) -> String {
    let word = |random: &mut StdRng| {
        let rank = (VOCABULARY as f64).powf(random.random::<f64>()) as u32;
        format!("w{rank}")
    };
    (0..count).map(|_| word(random)).collect::<Vec<_>>().join(" ")
}

fn seconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64()
}

/// A figure of this process in megabytes, where the system tells.
fn resident(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) >> 10
}
