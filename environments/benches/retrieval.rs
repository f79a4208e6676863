//! Measures indexing and searching of a generated corpus, so that no data is required. `benches/retrieval` in
//! the repository's root uses HotpotQA's corpus and compares other indexes.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use lumos_environments::retrieval::{LibraryBuilder, scores};

/// Deterministic pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Returns words with the frequencies of a natural language: the n-th is about 1/n as frequent as the
    /// first.
    fn words(&mut self, count: usize) -> String {
        let word = |number: u64| {
            let skewed = (1.0 + number as f64 / (1u64 << 31) as f64 * 10.0).exp() as u64;
            format!("w{skewed}")
        };
        (0..count).map(|_| word(self.next())).collect::<Vec<_>>().join(" ")
    }
}

fn corpus() -> Vec<(String, String)> {
    let mut numbers = Numbers(1);
    (0..5_000).map(|page| (format!("{} {page}", numbers.words(2)), numbers.words(80))).collect()
}

fn retrieval(criterion: &mut Criterion) {
    let pages = corpus();
    let build = || {
        let mut builder = LibraryBuilder::default();
        pages.iter().for_each(|(title, text)| builder.add(title, text));
        builder.build()
    };
    let library = build();
    let mut group = criterion.benchmark_group("retrieval");
    group.sample_size(20);
    group.bench_function("index 5,000 pages", |bencher| bencher.iter(build));
    let mut numbers = Numbers(2);
    let questions: Vec<String> = (0..64).map(|_| numbers.words(16)).collect();
    group.bench_function("search 64 questions", |bencher| {
        bencher.iter(|| {
            for question in &questions {
                black_box(library.search(black_box(question), 5));
            }
        });
    });
    let passages: Vec<String> = (0..40).map(|_| numbers.words(30)).collect();
    group.bench_function("rank 40 passages", |bencher| {
        bencher.iter(|| {
            let passages = passages.iter().map(|text| [("w1 w2", 1), (text.as_str(), 1)]);
            black_box(scores(black_box(&questions[0]), passages))
        });
    });
    group.finish();
}

criterion_group!(benches, retrieval);
criterion_main!(benches);
