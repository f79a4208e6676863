//! Queries per second for the crate's own table.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lumos_environments::maths::answer;
use serde_json::Value;

fn own_table(criterion: &mut Criterion) {
    let queries: Vec<String> = include_str!("../tests/data/maths_table.jsonl")
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|row| row["query"].as_str().map(str::to_owned))
        .collect();
    let mut group = criterion.benchmark_group("maths");
    group.throughput(Throughput::Elements(queries.len() as u64));
    group.bench_function("own table", |bencher| {
        bencher.iter(|| {
            for query in &queries {
                let _ = black_box(answer(black_box(query)));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, own_table);
criterion_main!(benches);
