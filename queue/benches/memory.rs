//! Messages per second through the in-memory queue: published, claimed and acknowledged.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lumos_queue::{MemoryQueue, Queue};

const MESSAGES: u64 = 1024;

fn messages(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut group = criterion.benchmark_group("publish_claim_acknowledge");
    group.throughput(Throughput::Elements(MESSAGES));
    for together in [1usize, 64] {
        group.bench_function(BenchmarkId::new("claimed together", together), |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let queue = MemoryQueue::bounded(MESSAGES as usize);
                    for number in 0..MESSAGES {
                        queue.publish(&number.to_string(), number).await.expect("the queue is open");
                    }
                    queue.close();
                    loop {
                        let leases = queue.claim(together).await.expect("the memory queue does not fail");
                        if leases.is_empty() {
                            break;
                        }
                        for lease in leases {
                            lease.acknowledge().await.expect("the lease is held");
                        }
                    }
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, messages);
criterion_main!(benches);
