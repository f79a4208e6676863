//! Compares lumos's index with tantivy and the crate `bm25` on HotpotQA's corpus:
//!
//! `cargo run --release --manifest-path benches/retrieval/Cargo.toml -- PAGES.jsonl QUESTIONS.jsonl`
//!
//! Pages are JSON lines with `title` and `text`; questions have `question` and `supporting_titles`. Prints
//! the processor time to index, the processor time per query (p50 and p99 of ten rounds of the same queries,
//! after one warm-up round) and the recall of supporting pages among the first five results. Processor time
//! does not depend on other processes on the machine.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::time::Duration;

use bm25::{Language, SearchEngineBuilder};
use lumos_environments::retrieval::{Library, LibraryBuilder};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use tantivy::collector::TopDocs;
use tantivy::query::QueryParser;
use tantivy::schema::{Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions, Value};
use tantivy::{Index, IndexReader, TantivyDocument, doc};

const MOST: usize = 5;
const ROUNDS: usize = 10;

#[derive(Deserialize)]
struct Page {
    title: String,
    text: String,
}

#[derive(Deserialize)]
struct Question {
    question: String,
    supporting_titles: Vec<String>,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn read<T: for<'a> Deserialize<'a>>(path: &str) -> Outcome<Vec<T>> {
    Ok(fs::read_to_string(path)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Joins consecutive paragraphs of one title into a page, as input for all three indexes.
fn pages(paragraphs: Vec<Page>) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    for page in paragraphs {
        match pages.last_mut().filter(|last| last.title == page.title) {
            Some(last) => last.text = format!("{}\n{}", last.text, page.text),
            None => pages.push(page),
        }
    }
    pages
}

fn library(pages: &[Page]) -> Library {
    let mut builder = LibraryBuilder::default();
    pages.iter().for_each(|page| builder.add(&page.title, &page.text));
    builder.build()
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Builds an index. Returns it and the processor time of all threads of this process.
fn timed<T>(build: impl FnOnce() -> T) -> (T, Duration) {
    let began = now(ClockId::ProcessCPUTime);
    (build(), now(ClockId::ProcessCPUTime) - began)
}

struct Tantivy {
    reader: IndexReader,
    parser: QueryParser,
    title: Field,
}

impl Tantivy {
    /// Builds an index with the usual schema for English and one indexing thread.
    fn build(pages: &[Page]) -> Outcome<Self> {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer("en_stem")
            .set_index_option(IndexRecordOption::WithFreqs);
        let options = TextOptions::default().set_indexing_options(indexing);
        let title = schema.add_text_field("title", options.clone() | STORED);
        let text = schema.add_text_field("text", options);
        let index = Index::create_in_ram(schema.build());
        let mut writer = index.writer_with_num_threads(1, 100 << 20)?;
        for page in pages {
            writer.add_document(doc!(title => page.title.as_str(), text => page.text.as_str()))?;
        }
        writer.commit()?;
        writer.wait_merging_threads()?;
        let mut parser = QueryParser::for_index(&index, vec![title, text]);
        parser.set_field_boost(title, 2.0);
        Ok(Self { reader: index.reader()?, parser, title })
    }

    fn search(&self, question: &str) -> Vec<String> {
        let searcher = self.reader.searcher();
        let (query, _) = self.parser.parse_query_lenient(question);
        let found = searcher.search(&query, &TopDocs::with_limit(MOST).order_by_score()).unwrap_or_default();
        let documents = found.iter().filter_map(|(_, at)| searcher.doc::<TantivyDocument>(*at).ok());
        documents.filter_map(|document| document.get_first(self.title)?.as_str().map(str::to_owned)).collect()
    }
}

/// Measures an index and prints its line of the table.
fn measure(name: &str, built: Duration, questions: &[Question], search: impl Fn(&str) -> Vec<String>) {
    let mut times = Vec::new();
    let (mut found, mut wanted) = (0, 0);
    for round in 0..=ROUNDS {
        for question in questions {
            let began = now(ClockId::ThreadCPUTime);
            let titles = search(&question.question);
            let time = now(ClockId::ThreadCPUTime) - began;
            if round > 0 {
                times.push(time);
                continue;
            }
            let titles: HashSet<String> = titles.into_iter().map(|title| plain(&title)).collect();
            wanted += question.supporting_titles.len();
            found += question.supporting_titles.iter().filter(|title| titles.contains(&plain(title))).count();
        }
    }
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    println!(
        "{name:<8} index {:>6} ms   query p50 {:>6} µs   p99 {:>6} µs   recall@5 {:.1} % ({found} of {wanted})",
        built.as_millis(),
        at(50),
        at(99),
        100.0 * found as f64 / wanted as f64,
    );
}

/// HotpotQA writes some characters of titles as character references, which lumos's index resolves.
fn plain(title: &str) -> String {
    title.replace("&quot;", "\"").replace("&amp;", "&")
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(corpus), Some(questions)) = (arguments.next(), arguments.next()) else {
        return Err("expected two arguments: PAGES.jsonl QUESTIONS.jsonl".into());
    };
    let pages = pages(read(&corpus)?);
    let questions: Vec<Question> = read(&questions)?;
    println!("{} pages, {} questions", pages.len(), questions.len());

    let (library, built) = timed(|| library(&pages));
    measure("lumos", built, &questions, |question| {
        library.search(question, MOST).iter().map(|page| page.title.to_owned()).collect()
    });

    let (tantivy, built) = timed(|| Tantivy::build(&pages));
    let tantivy = tantivy?;
    measure("tantivy", built, &questions, |question| tantivy.search(question));

    let texts = pages.iter().map(|page| format!("{0} {0} {1}", page.title, page.text));
    let (engine, built) = timed(|| SearchEngineBuilder::<u32>::with_corpus(Language::English, texts).build());
    measure("bm25", built, &questions, |question| {
        let found = engine.search(question, MOST);
        found
            .iter()
            .filter_map(|hit| pages.get(hit.document.id as usize))
            .map(|page| page.title.clone())
            .collect()
    });
    Ok(())
}
