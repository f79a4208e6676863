//! Items per second for reading and validating the built-in samples, and for scoring.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lumos_benchmarks::DataSource;

fn loading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("load");
    for benchmark in lumos_benchmarks::all() {
        group.throughput(Throughput::Elements(30));
        group.bench_function(BenchmarkId::from_parameter(benchmark.name()), |bencher| {
            bencher.iter(|| {
                benchmark.open(DataSource::Samples).map(|items| items.filter(Result::is_ok).count())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, loading);
criterion_main!(benches);
