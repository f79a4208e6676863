//! The table of model families in README.md: every cell names a test that covers it.
//!
//! `LUMOS_BLESS=1 cargo test --test it -- families` writes the table.

use std::fs;
use std::path::Path;

/// How a family can be loaded or computed: a column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    Safetensors,
    Lora,
    Gguf,
    /// CUDA kernels on the emulator.
    Cuda,
    CandleTransformers,
}

impl Support {
    const COLUMNS: [(Self, &str); 5] = [
        (Self::Safetensors, "safetensors"),
        (Self::Lora, "LoRA"),
        (Self::Gguf, "GGUF"),
        (Self::Cuda, "CUDA (emulated)"),
        (Self::CandleTransformers, "candle-transformers"),
    ];
}

/// One cell and the test that covers it.
struct Row {
    family: &'static str,
    support: Support,
    /// What the cell says: `yes`, or a restriction.
    cell: &'static str,
    file: &'static str,
    test: &'static str,
}

const REFERENCE: &str = "models/tests/it/candle_transformers.rs";

/// A family whose reference folder candle-transformers computes like transformers.
const fn equal(family: &'static str) -> Row {
    let test = "reference_folders_are_computed_like_transformers";
    Row { family, support: Support::CandleTransformers, cell: "yes", file: REFERENCE, test }
}

/// A family that candle-transformers computes like transformers in sequences up to its window.
const fn windowed(family: &'static str) -> Row {
    let test = "windows_do_not_matter_in_sequences_that_fit";
    Row { family, support: Support::CandleTransformers, cell: "up to the window", file: REFERENCE, test }
}

/// A family that only candle-transformers has.
const fn further(family: &'static str) -> Row {
    let test = "further_families_are_computed_like_transformers";
    Row { family, support: Support::CandleTransformers, cell: "yes", file: REFERENCE, test }
}

/// The cells, by family and column.
const SUPPORT: &[Row] = &[
    Row {
        family: "Llama",
        support: Support::Safetensors,
        cell: "yes",
        file: "engine/tests/it/reference.rs",
        test: "equals_transformers_alone_and_together",
    },
    Row {
        family: "Llama",
        support: Support::Lora,
        cell: "yes",
        file: "engine/tests/it/adapter.rs",
        test: "peft_computes_the_same",
    },
    Row {
        family: "Llama",
        support: Support::Gguf,
        cell: "yes",
        file: "engine/tests/it/gguf.rs",
        test: "floats_equal_the_folder_to_the_bit",
    },
    Row {
        family: "Llama",
        support: Support::Cuda,
        cell: "yes",
        file: "engine/src/cuda/tests/models.rs",
        test: "equals_transformers",
    },
    equal("Llama"),
    windowed("Mistral"),
    equal("Mixtral"),
    equal("Qwen 2"),
    equal("Qwen 3"),
    equal("Qwen 3 MoE"),
    windowed("Gemma 2"),
    equal("Gemma 3"),
    equal("Phi-3"),
    equal("OLMo 2"),
    Row {
        family: "Granite",
        support: Support::CandleTransformers,
        cell: "refused",
        file: REFERENCE,
        test: "refused_folders_are_named_and_computed_differently",
    },
    further("Gemma 1"),
    further("OLMo 1"),
    further("Qwen 2 MoE"),
    further("StarCoder2"),
];

const START: &str = "<!-- families -->";
const END: &str = "<!-- /families -->";

fn table() -> String {
    let mut families: Vec<&str> = SUPPORT.iter().map(|row| row.family).collect();
    families.dedup();
    let cells = |family: &str| {
        Support::COLUMNS.map(|(column, _)| {
            let row = SUPPORT.iter().find(|row| row.family == family && row.support == column);
            row.map_or("–", |row| row.cell)
        })
    };
    let line = |first: &str, cells: [&str; 5]| format!("| {first} | {} |\n", cells.join(" | "));
    let mut text = line("family", Support::COLUMNS.map(|(_, name)| name));
    text.push_str("|---|---|---|---|---|---|\n");
    for family in families {
        text.push_str(&line(family, cells(family)));
    }
    text
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_readme_lists_the_families_that_tests_cover() {
    let file = root().join("README.md");
    let readme = fs::read_to_string(&file).unwrap();
    let (before, rest) = readme.split_once(START).expect("README.md has the mark of the table");
    let (found, after) = rest.split_once(END).expect("README.md has the end of the table");
    let expected = format!("\n{}", table());
    if std::env::var_os("LUMOS_BLESS").is_some() {
        fs::write(&file, format!("{before}{START}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, expected, "run this test with LUMOS_BLESS=1");
}

#[test]
fn the_tests_of_the_table_exist() {
    for (index, row) in SUPPORT.iter().enumerate() {
        let text = fs::read_to_string(root().join(row.file)).unwrap();
        let (file, test) = (row.file, row.test);
        let call = format!("fn {test}()");
        let start = text.find(&call).unwrap_or_else(|| panic!("{file} has no {test}"));
        let attributes = text[..start].rsplit("\n\n").next().unwrap_or_default();
        assert!(attributes.contains("test"), "{test} is not a test");
        let twice =
            SUPPORT[..index].iter().any(|other| other.family == row.family && other.support == row.support);
        assert!(!twice, "two rows for {} and {:?}", row.family, row.support);
    }
}
