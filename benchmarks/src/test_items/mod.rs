//! Guard against training on test sets: which items of a run may become training data.
//!
//! [`is_training_data`] fails closed: an item is accepted only if there is evidence that it is in no test set. The
//! lists `*.bin` next to this file contain the fingerprints of the test sets' tasks, as sorted 64-bit integers in
//! big-endian order. `cargo run -p lumos-benchmarks --example test_items -- DATA` writes them from the official files.

use lumos_tasks::{ContentHash, Item, Task};

use crate::benchmark::{Benchmark, Training};
use crate::registry::all;

/// Returns whether an item is known to be outside of the test sets. `data` is the SHA-256 of the data that the item was read from.
///
/// | data | accepted items |
/// |---|---|
/// | the built-in samples of a benchmark of this crate | all |
/// | GSM8K, SVAMP, HotpotQA, StrategyQA, InterCode SQL | those of other files than the official one whose fingerprint is not in the list |
/// | WebShop | goals from 1,500 on |
/// | Mind2Web | tasks of the split `train` |
/// | a task file or another definition with `data.training` | those whose fingerprint is in no list |
/// | others | none |
pub fn is_training_data(benchmark: &dyn Benchmark, data: &ContentHash, item: &Item) -> bool {
    if let Some(definition) = benchmark.definition() {
        return definition.data.training
            && test_item_fingerprint(&item.task)
                .is_some_and(|fingerprint| !lists().any(|list| contains(list, fingerprint)));
    }
    if *data == ContentHash::of_bytes(benchmark.samples()) {
        return true;
    }
    match benchmark.description().training {
        Training::Declared => false,
        Training::Items(accepts) => accepts(item),
        Training::Unlisted(list) => {
            let is_official = benchmark.downloads().iter().any(|file| file.sha256 == data.as_str());
            test_item_fingerprint(&item.task)
                .is_some_and(|fingerprint| !is_official && !contains(list, fingerprint))
        }
    }
}

/// Returns the fingerprint of a task: the first 8 bytes of the SHA-256 of its text, in lower case and with single
/// spaces. `None` for a judge's question.
pub fn test_item_fingerprint(task: &Task) -> Option<u64> {
    let text = match task {
        Task::Maths { question } | Task::Qa { question, .. } | Task::Sql { question, .. } => question,
        Task::Web { task, .. } => task,
        Task::Shop { instruction, .. } => instruction,
        Task::Added(task) => &task.task,
        Task::Judge { .. } => return None,
    };
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let hash = ContentHash::of_bytes(words.join(" ").as_bytes());
    u64::from_str_radix(hash.as_str().get(..16)?, 16).ok()
}

/// Returns the fingerprints of the test sets that are listed.
fn lists() -> impl Iterator<Item = &'static [u8]> {
    all().iter().filter_map(|benchmark| match benchmark.description().training {
        Training::Unlisted(list) => Some(list),
        Training::Items(_) | Training::Declared => None,
    })
}

fn contains(list: &[u8], fingerprint: u64) -> bool {
    let (entries, _) = list.as_chunks::<8>();
    entries.binary_search(&fingerprint.to_be_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loading::DataSource;
    use crate::registry::find;

    /// Benchmarks with a list (all of them), the official file below `data/` of the shared folder, and its number of items.
    const FILES: [(&str, &str, usize); 5] = [
        ("gsm8k", "gsm8k/test.jsonl", 1319),
        ("svamp", "svamp/test.json", 1000),
        ("hotpotqa", "hotpotqa/lumos_test.json", 7405),
        ("strategyqa", "strategyqa/test.json", 2290),
        ("intercode_sql", "intercode_sql/ic_spider_dev.json", 1034),
    ];

    fn list(name: &str) -> &'static [u8] {
        match find(name).unwrap().description().training {
            Training::Unlisted(list) => list,
            Training::Items(_) | Training::Declared => panic!("{name} has no list"),
        }
    }

    fn samples(name: &str) -> Vec<Item> {
        find(name).unwrap().open(DataSource::Samples).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn samples_are_accepted_and_the_same_items_of_another_file_only_if_they_are_not_listed() {
        let other = ContentHash::of_bytes(b"another file");
        for benchmark in all() {
            let name = benchmark.name();
            let own = ContentHash::of_bytes(benchmark.samples());
            for item in samples(name) {
                assert!(is_training_data(*benchmark, &own, &item), "{name}");
                let is_listed = FILES.iter().any(|(listed, ..)| *listed == name);
                assert_eq!(is_training_data(*benchmark, &other, &item), is_listed, "{name}");
            }
            if let Some(official) = benchmark.downloads().first() {
                let official = ContentHash::from_hex(official.sha256);
                assert!(!is_training_data(*benchmark, &official, &samples(name)[0]), "{name}");
            }
        }
    }

    #[test]
    fn lists_are_sorted_and_a_reformatted_test_item_is_found() {
        for (name, _, items) in FILES {
            let (entries, rest) = list(name).as_chunks::<8>();
            assert!(rest.is_empty() && entries.is_sorted(), "{name}");
            assert!(entries.len() <= items && entries.len() * 10 > items * 9, "{name}: {}", entries.len());
        }
        // The first question of GSM8K's test set, in other case and spacing.
        let question = "Janet’s ducks lay 16 eggs per day.  She eats three for breakfast every morning and bakes \
                        muffins for her friends every day with four. She sells the remainder at the farmers' market \
                        daily for $2 per fresh duck egg. HOW MUCH in dollars does she make every day at the \
                        farmers' market?\n";
        let item = Item { task: Task::Maths { question: question.to_owned() }, ..samples("gsm8k").remove(0) };
        let copied = ContentHash::of_bytes(b"one line of the test file");
        assert!(!is_training_data(find("gsm8k").unwrap(), &copied, &item));
    }

    #[test]
    fn items_of_task_files_are_accepted_if_the_file_says_so_and_no_test_set_has_them() {
        use crate::task_file::{TaskDefinition, TaskFamily, TaskFile};

        let data = ContentHash::of_bytes(b"own items");
        let accepted = |training: bool, question: &str| {
            let mut definition = TaskDefinition::new("own", TaskFamily::Maths, "items.jsonl");
            definition.data.training = training;
            let benchmark = TaskFile { path: "task.toml".into(), definition }.benchmark();
            let item =
                Item { task: Task::Maths { question: question.to_owned() }, ..samples("gsm8k").remove(0) };
            is_training_data(benchmark, &data, &item)
        };
        assert!(accepted(true, "How many?") && !accepted(false, "How many?"));
        let question = "Janet’s ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes muffins \
                        for her friends every day with four. She sells the remainder at the farmers' market daily for \
                        $2 per fresh duck egg. How much in dollars does she make every day at the farmers' market?";
        assert!(!accepted(true, question));
        assert_eq!(lists().collect::<Vec<_>>(), FILES.map(|(name, ..)| list(name)));
    }

    #[test]
    fn webshop_goals_and_mind2web_splits_decide() {
        let other = ContentHash::of_bytes(b"another file");
        let goal = samples("webshop").remove(0);
        for (index, accepted) in [(0, false), (1499, false), (1500, true)] {
            let goal = Item { index, ..goal.clone() };
            assert_eq!(is_training_data(find("webshop").unwrap(), &other, &goal), accepted, "{index}");
        }
        let task = samples("mind2web").remove(0);
        for (group, accepted) in [
            (None, false),
            (Some("split: test_domain\nwebsite: train"), false),
            (Some("split: train\nwebsite: a"), true),
        ] {
            let task = Item { group: group.map(str::to_owned), ..task.clone() };
            assert_eq!(is_training_data(find("mind2web").unwrap(), &other, &task), accepted, "{group:?}");
        }
    }

    #[test]
    fn lists_contain_the_official_files() {
        let Some(data) = lumos_capabilities::shared("data") else { return };
        for (name, file, items) in FILES {
            let source = DataSource::File(data.join(file));
            let mut count = 0;
            for item in find(name).unwrap().open(source).unwrap() {
                let Ok(item) = item else { continue };
                let fingerprint = test_item_fingerprint(&item.task).unwrap();
                assert!(contains(list(name), fingerprint), "{name} {}", item.index);
                count += 1;
            }
            assert!(count * 100 > items * 99, "{name}: {count}");
        }
    }
}
