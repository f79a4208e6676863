//! The table of model families in README.md: every cell names a test that covers it.
//!
//! `LUMOS_BLESS=1 cargo test --test program -- families` writes the table.

use std::fs;
use std::path::Path;

/// How a family can be loaded or computed: a column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    Safetensors,
    Lora,
    /// Packed weights: AWQ and GPTQ.
    Packed,
    Gguf,
    /// CUDA kernels on the emulator.
    Cuda,
    CandleTransformers,
}

impl Support {
    const COLUMNS: [(Self, &str); 6] = [
        (Self::Safetensors, "safetensors"),
        (Self::Lora, "LoRA"),
        (Self::Packed, "AWQ, GPTQ"),
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
const CUDA: &str = "engine/src/cuda/tests/models.rs";

/// A family whose reference folder the engine computes like transformers.
const fn native(family: &'static str) -> Row {
    let (file, test) = ("engine/tests/it/families.rs", "every_family_equals_transformers_alone_and_together");
    Row { family, support: Support::Safetensors, cell: "yes", file, test }
}

/// A family whose adapters are merged as by hand.
const fn adapted(family: &'static str) -> Row {
    let (file, test) = ("engine/tests/it/adapter.rs", "merged_weights_are_those_by_hand_in_every_family");
    Row { family, support: Support::Lora, cell: "yes", file, test }
}

/// A family whose GGUF files have the results of their folders.
const fn stored(family: &'static str) -> Row {
    let file = "engine/src/load/gguf/family_tests.rs";
    let test = "files_of_every_family_equal_their_folders_to_the_bit";
    Row { family, support: Support::Gguf, cell: "yes", file, test }
}

/// A family that is refused on GPUs.
const fn on_processors(family: &'static str) -> Row {
    Row {
        family,
        support: Support::Cuda,
        cell: "refused",
        file: CUDA,
        test: "other_families_are_refused_by_name",
    }
}

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
        support: Support::Packed,
        cell: "yes",
        file: "engine/tests/it/packed.rs",
        test: "packed_weights_equal_their_values_to_the_bit",
    },
    Row {
        family: "Llama",
        support: Support::Gguf,
        cell: "yes",
        file: "engine/tests/it/gguf.rs",
        test: "floats_equal_the_folder_to_the_bit",
    },
    Row { family: "Llama", support: Support::Cuda, cell: "yes", file: CUDA, test: "equals_transformers" },
    equal("Llama"),
    native("Mistral"),
    windowed("Mistral"),
    native("Mixtral"),
    adapted("Mixtral"),
    stored("Mixtral"),
    on_processors("Mixtral"),
    equal("Mixtral"),
    native("Qwen 2"),
    stored("Qwen 2"),
    on_processors("Qwen 2"),
    equal("Qwen 2"),
    native("Qwen 3"),
    adapted("Qwen 3"),
    stored("Qwen 3"),
    on_processors("Qwen 3"),
    equal("Qwen 3"),
    native("Qwen 3 MoE"),
    adapted("Qwen 3 MoE"),
    stored("Qwen 3 MoE"),
    on_processors("Qwen 3 MoE"),
    equal("Qwen 3 MoE"),
    native("Gemma 2"),
    stored("Gemma 2"),
    on_processors("Gemma 2"),
    windowed("Gemma 2"),
    native("Gemma 3"),
    adapted("Gemma 3"),
    stored("Gemma 3"),
    on_processors("Gemma 3"),
    equal("Gemma 3"),
    native("Phi-3"),
    adapted("Phi-3"),
    stored("Phi-3"),
    on_processors("Phi-3"),
    equal("Phi-3"),
    native("OLMo 2"),
    stored("OLMo 2"),
    on_processors("OLMo 2"),
    equal("OLMo 2"),
    native("Granite"),
    stored("Granite"),
    on_processors("Granite"),
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
    let line = |first: &str, cells: [&str; 6]| format!("| {first} | {} |\n", cells.join(" | "));
    let mut text = line("family", Support::COLUMNS.map(|(_, name)| name));
    text.push_str("|---|---|---|---|---|---|---|\n");
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
