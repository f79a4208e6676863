//! Resolves flags, environment and files into one specification.
//!
//! [`resolve`] merges the layers of `lumos run`. `compute` has the model, engine, device and concurrency settings, also
//! of commands without a specification.

mod compute;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lumos_benchmarks::task_file::TaskFile;
use lumos_benchmarks::{Benchmark, Scoring};
use lumos_coordinator::spec::{
    BatchSize, FailOnError, GenerationSpec, LimitsSpec, ModelSet, Partition, Preset, ResolvedSpec,
    RulePlaces, RunSpec, expand_names, parse_samples, read_task_file,
};
use lumos_models::{ModelName, check_prompt_template};
use lumos_tasks::{Behaviour, Formulation, Placement, PromptFormat, PromptTemplate};
use lumos_tools::browser::BrowserName;
use lumos_tools::sessions::catalogue::ShopFiles;

use crate::cli::{ModelArgs, RunArgs};
use crate::exit::Failure;
use crate::writable::not_utf8;

pub(crate) use compute::{
    Computes, builtin_domain, concurrency, concurrency_of, engine, fixed, model_source, models_of, placement,
};

/// Finds a benchmark by name.
pub(crate) fn benchmark(name: &str) -> Result<&'static dyn Benchmark, Failure> {
    lumos_benchmarks::get(name).map_err(Failure::usage)
}

/// Resolves the settings of the file, if there is one, with the flags (which include the environment) on top.
pub(crate) fn resolve(arguments: &RunArgs) -> Result<ResolvedSpec, Failure> {
    let mut file = match arguments.settings_file() {
        Some(path) => RunSpec::from_file(path).map_err(Failure::usage)?,
        None => RunSpec::default(),
    };
    let (tasks, mut files) = task_files(&arguments.selection.tasks)?;
    if tasks.is_empty() {
        (file, files) = with_task_files(file)?;
    }
    let selected: &[String] =
        if tasks.is_empty() { file.tasks.as_deref().unwrap_or_default() } else { &tasks };
    let mut over = flags(arguments, &tasks, selected)?;
    if let Some(name) = over.browser.as_ref().or(file.browser.as_ref()) {
        over.browser = Some(parse::<BrowserName>(name)?.to_string());
    }
    let mut spec = with_model_names(file.merge(over));
    check_paths(&spec)?;
    // Of the merged layers: the file may set the shop's backend, data and browser.
    let nouns = arguments.models.pos_nouns.as_deref();
    spec.tools = with_nouns(spec.tools, nouns, spec.data.as_deref(), spec.browser.as_deref())?;
    let spec = spec.resolve_with(&files).map_err(Failure::usage)?;
    check_preset_data(&spec)?;
    Ok(spec)
}

/// Checks that the manifest, which is JSON, can contain the paths of a specification.
///
/// # Errors
/// If one is not UTF-8.
fn check_paths(spec: &RunSpec) -> Result<(), Failure> {
    for (path, flag) in [
        (&spec.output_path, "--output-path (LUMOS_OUTPUT_PATH)"),
        (&spec.data, "--data (LUMOS_DATA)"),
        (&spec.exemplars, "--exemplars (LUMOS_EXEMPLARS)"),
    ] {
        if let Some(path) = path.as_deref().filter(|path| path.to_str().is_none()) {
            return Err(not_utf8(path).hint(format!("set another path with {flag}")));
        }
    }
    Ok(())
}

/// Replaces the paths of task files in a specification by the names of their benchmarks, and returns the files.
pub(crate) fn with_task_files(mut spec: RunSpec) -> Result<(RunSpec, Vec<TaskFile>), Failure> {
    let Some(words) = spec.tasks else { return Ok((spec, Vec::new())) };
    let (names, files) = task_files(&words)?;
    spec.tasks = Some(names);
    Ok((spec, files))
}

/// Replaces the paths of task files, and of folders of them, by the names of their benchmarks, and returns the files.
fn task_files(words: &[String]) -> Result<(Vec<String>, Vec<TaskFile>), Failure> {
    let (mut names, mut files) = (Vec::new(), Vec::<TaskFile>::new());
    let words = words.iter().flat_map(|word| word.split(',')).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let path = Path::new(word);
        let is_name = lumos_benchmarks::find(word).is_some() || word == "all";
        let is_path = word.contains(['/', '\\']) || word.ends_with(TaskFile::ENDING) || path.is_dir();
        if is_name || !is_path {
            names.push(word.to_owned());
            continue;
        }
        let paths = if path.is_dir() { task_files_in(path)? } else { vec![path.to_owned()] };
        for path in paths {
            let file = task_file(&path)?;
            let name = &file.definition.name;
            match files.iter().find(|other| other.definition.name == *name) {
                Some(other) if other.path != path => {
                    let (one, two) = (other.path.display(), path.display());
                    return Err(Failure::input(format!("{one} and {two} have the same name `{name}`"))
                        .hint("change `name` in one of them"));
                }
                Some(_) => {}
                None => {
                    names.push(name.clone());
                    files.push(file);
                }
            }
        }
    }
    Ok((names, files))
}

/// Reads a task file.
pub(crate) fn task_file(path: &Path) -> Result<TaskFile, Failure> {
    read_task_file(path).map_err(|error| {
        Failure::usage(error).hint("write an example with `lumos init task DIR`; see docs/guide/own-data.md")
    })
}

/// Returns the task files in a folder, by name.
fn task_files_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::input(format!("{}: {error}", folder.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.to_string_lossy().ends_with(TaskFile::ENDING) {
            // The manifest contains the path.
            if path.to_str().is_none() {
                return Err(not_utf8(&path).hint("rename the file"));
            }
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Failure::input(format!("no task files (*.toml) in folder `{}`", folder.display()))
            .hint("write an example with `lumos init task DIR`"));
    }
    Ok(paths)
}

/// Returns a model's name as stored in a manifest: adds the backend to an existing folder or GGUF file.
pub(crate) fn model_name(given: String) -> String {
    ModelName::of_path(given.trim()).map_or(given, |name| name.to_string())
}

/// Applies [`model_name`] to all models of a specification.
pub(crate) fn with_model_names(mut spec: RunSpec) -> RunSpec {
    spec.models = spec.models.map(|sets| sets.into_iter().map(|set| set.map_names(model_name)).collect());
    spec
}

/// The paper preset needs the published items, which the built-in samples are not.
fn check_preset_data(spec: &ResolvedSpec) -> Result<(), Failure> {
    if spec.preset != Some(Preset::Paper) || spec.data.is_some() {
        return Ok(());
    }
    let tasks = spec.tasks.iter().map(|task| benchmark(task)).collect::<Result<Vec<_>, _>>()?;
    let files: Vec<_> = tasks.iter().map(|task| task.data_file()).collect();
    let (fetched, by_hand): (Vec<_>, Vec<_>) = tasks.iter().partition(|task| !task.downloads().is_empty());
    let names =
        |tasks: &[&&dyn Benchmark]| tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(" ");
    let mut hint = Vec::new();
    if !fetched.is_empty() {
        hint.push(format!("download it with `lumos fetch {} --data data`", names(&fetched)));
    }
    if !by_hand.is_empty() {
        hint.push(format!("see docs/ for how to get the data of {}", names(&by_hand)));
    }
    Err(Failure::input(format!(
        "--preset paper needs the published data, but --data is not set: missing {}",
        files.join(", ")
    ))
    .hint(format!("{}; then add `--data data` to this command", hint.join("; "))))
}

/// Returns the layer of the flags. `selected` are the benchmarks of the run, which may be those of the settings file.
fn flags(arguments: &RunArgs, tasks: &[String], selected: &[String]) -> Result<RunSpec, Failure> {
    let RunArgs { selection, models, output, engine, backend, memory, limits, .. } = arguments;
    Ok(RunSpec {
        name: output.name.clone(),
        preset: selection.preset.as_deref().map(parse::<Preset>).transpose()?,
        tasks: given(tasks),
        formulation: list::<Formulation>(&selection.formulation)?,
        behaviour: list::<Behaviour>(&selection.behaviour)?,
        scoring: list::<Scoring>(&selection.scoring)?,
        models: model_set(models),
        seed: match selection.epochs {
            Some(epochs) => Some((0..epochs).collect()),
            None => given(&selection.seed),
        },
        limit: selection.limit,
        samples: samples(&selection.samples, &named(selected))?,
        partition: selection.partition.as_deref().map(parse::<Partition>).transpose()?,
        data: selection.data.clone(),
        output_path: output.output_path.clone(),
        generation: GenerationSpec {
            temperature: models.temperature,
            top_p: models.top_p,
            top_k: models.top_k,
            max_new_tokens: models.max_new_tokens,
        },
        tools: tools(&models.tools)?,
        batch_size: engine.batch_size.as_deref().map(parse::<BatchSize>).transpose()?,
        device: engine.device.as_deref().map(parse::<Placement>).transpose()?,
        memory: memory.memory,
        swap: memory.swap,
        concurrency: memory.concurrency,
        dtype: engine.dtype.clone(),
        backend: backend.backend,
        limits: LimitsSpec {
            time_limit: limits.time_limit,
            fail_on_error: limits.fail_on_error.as_deref().map(parse::<FailOnError>).transpose()?,
            retry_on_error: limits.retry_on_error,
        },
        skip_invalid: selection.skip_invalid.then_some(true),
        exemplars: models.exemplars.clone(),
        browser: models.browser.clone(),
        prompt_template: models.prompt_template.clone(),
        exemplars_per_prompt: models.exemplars_per_prompt,
        // Rules are in files only.
        exclude: None,
        overrides: None,
        order: None,
        places: RulePlaces::default(),
    })
}

/// Returns how a run's conversations reach its models. Reads the template if it is a file.
pub(crate) fn prompt_format(spec: &ResolvedSpec) -> Result<PromptFormat, Failure> {
    let exemplars = spec.exemplars_per_prompt;
    let template = match spec.prompt_template.as_deref() {
        None => PromptTemplate::default(),
        Some(name) => match PromptTemplate::named(name) {
            Some(template) => template,
            None => PromptTemplate::File(template_file(Path::new(name))?.into()),
        },
    };
    Ok(PromptFormat { template, exemplars })
}

/// Reads and checks a template file.
fn template_file(path: &Path) -> Result<String, Failure> {
    let failed = |why: String| {
        let hint = format!("pass {}, or the path of a Jinja template", PromptTemplate::NAMES.join(", "));
        Failure::input(format!("invalid prompt template `{}`: {why}", path.display())).hint(hint)
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let most = PromptTemplate::MOST_BYTES;
    file.take(most as u64 + 1).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() > most {
        return Err(failed(format!("more than {most} bytes")));
    }
    let text = String::from_utf8(text).map_err(|error| failed(error.to_string()))?;
    check_prompt_template(&text).map_err(failed)?;
    Ok(text)
}

/// Expands a list of benchmarks; see [`expand_names`].
pub(crate) fn named(words: &[String]) -> Vec<String> {
    let known: Vec<&str> = lumos_benchmarks::all().iter().map(|benchmark| benchmark.name()).collect();
    expand_names(words.iter().map(String::as_str), &known)
}

/// Converts a flag's value in seconds.
pub(crate) fn seconds(flag: &str, value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        Failure::input(format!("invalid value `{value}` for {flag}: expected a number of seconds"))
    })
}

/// Returns `None` for a flag that was not given.
fn given<T: Clone>(values: &[T]) -> Option<Vec<T>> {
    (!values.is_empty()).then(|| values.to_vec())
}

fn parse<T: FromStr<Err: std::fmt::Display>>(word: &str) -> Result<T, Failure> {
    word.trim().parse().map_err(Failure::input)
}

fn list<T: FromStr<Err: std::fmt::Display>>(words: &[String]) -> Result<Option<Vec<T>>, Failure> {
    given(words).map(|words| words.iter().map(|word| parse(word)).collect()).transpose()
}

fn model_set(models: &ModelArgs) -> Option<Vec<ModelSet>> {
    let set = ModelSet {
        model: models.model.clone(),
        planner: models.planner.clone(),
        grounder: models.grounder.clone(),
        answerer: models.answerer.clone(),
        qa: models.qa.clone(),
    };
    (set != ModelSet::default()).then(|| vec![set])
}

/// Parses scorings by name. An empty list means the run's own scorings.
pub(crate) fn scorings(words: &[String]) -> Result<Vec<Scoring>, Failure> {
    Ok(list::<Scoring>(words)?.unwrap_or_default())
}

/// Parses `--samples`: `0-9,15` applies to the only benchmark of the run, `gsm8k=0-9` to the named one.
fn samples(
    given: &[String],
    tasks: &[String],
) -> Result<Option<BTreeMap<String, lumos_coordinator::spec::Selection>>, Failure> {
    let mut all = BTreeMap::new();
    for text in given {
        let text = match (text.contains('='), tasks) {
            (true, _) => text.clone(),
            (false, [task]) => format!("{task}={text}"),
            (false, _) => {
                return Err(Failure::input(format!(
                    "invalid value `{text}` for --samples: missing the benchmark"
                ))
                .hint(format!("with several benchmarks, pass --samples gsm8k={text}")));
            }
        };
        all.extend(parse_samples(&text).map_err(Failure::input)?);
    }
    Ok((!all.is_empty()).then_some(all))
}

fn tools(given: &[String]) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let mut tools = BTreeMap::new();
    for text in given {
        let (tool, backend) = text.split_once('=').ok_or_else(|| {
            Failure::input(format!("invalid value `{text}` for --tool: expected NAME=BACKEND"))
                .hint("for example --tool maths=native")
        })?;
        tools.insert(tool.to_owned(), backend.to_owned());
    }
    Ok((!tools.is_empty()).then_some(tools))
}

/// Adds a file of nouns to the shop's backend, if one is specified.
fn with_nouns(
    tools: Option<BTreeMap<String, String>>,
    nouns: Option<&Path>,
    data: Option<&Path>,
    browser: Option<&str>,
) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let Some(nouns) = nouns else { return Ok(tools) };
    let mut tools = tools.unwrap_or_default();
    let shop = tools.remove("shop").map_or_else(|| usual_shop(data, browser), Ok)?;
    // The nouns of the backend are replaced.
    let shop = shop.split(",nouns=").next().unwrap_or_default();
    tools.insert("shop".to_owned(), ShopFiles::with_nouns(shop, nouns));
    Ok(Some(tools))
}

/// Returns the shop's default backend: the catalogue from which the goals were created, in the browser if one
/// is specified.
pub(crate) fn usual_shop(data: Option<&Path>, browser: Option<&str>) -> Result<String, Failure> {
    let files = ShopFiles { folder: data.map(|folder| folder.join("webshop")), nouns: None };
    Ok(match browser {
        Some(browser) => files.backend_in(&parse::<BrowserName>(browser)?),
        None => files.backend(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn paths_that_are_not_utf_8_are_refused() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        use clap::Parser;

        use crate::cli::{Cli, Command};

        for flag in ["--output-path", "--data", "--exemplars"] {
            let words = ["lumos", "run", "--tasks", "svamp", "--model", "builtin:tiny", flag].map(OsStr::new);
            let cli = Cli::try_parse_from(words.into_iter().chain([OsStr::from_bytes(b"caf\xe9")])).unwrap();
            let Command::Run(arguments) = cli.command else { panic!("another command") };
            let failure = resolve(&arguments).unwrap_err();
            assert_eq!(failure.error.to_string(), "the path `caf\u{fffd}` is not UTF-8");
            assert!(failure.hint.unwrap().contains(flag));
        }
    }

    /// Other systems reject such names.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_task_file_whose_name_is_not_utf_8_is_refused() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(OsStr::from_bytes(b"caf\xe9.toml")), "").unwrap();
        let failure = task_files_in(folder.path()).unwrap_err();
        let message = failure.error.to_string();
        assert!(message.ends_with("caf\u{fffd}.toml` is not UTF-8"), "{message}");
        assert_eq!(failure.hint.as_deref(), Some("rename the file"));
    }

    #[test]
    fn flags_are_completed_by_the_settings_file() {
        use clap::Parser;
        use lumos_coordinator::spec::ItemChoice;

        use crate::cli::{Cli, Command};

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        let tools = |text: &str, flags: &[&str]| {
            std::fs::write(&file, format!("tasks = 'webshop'\nmodel = 'builtin:tiny'\n{text}")).unwrap();
            let words = ["lumos", "run", file.to_str().unwrap(), "--samples", "3-4"];
            let cli = Cli::try_parse_from(words.iter().chain(flags).copied()).unwrap();
            let Command::Run(arguments) = cli.command else { panic!("another command") };
            let spec = resolve(&arguments).unwrap();
            let chosen = ItemChoice::Chosen("3-4".parse().unwrap());
            assert_eq!(spec.items, BTreeMap::from([("webshop".to_owned(), chosen)]));
            spec.tools
        };
        let shop = |backend: &str| BTreeMap::from([("shop".to_owned(), backend.to_owned())]);
        let nouns = ["--pos-nouns", "n.jsonl"];
        assert_eq!(tools("", &nouns), shop("memory,nouns=n.jsonl"));
        assert_eq!(tools("data = 'data'", &nouns), shop("memory:data/webshop,nouns=n.jsonl"));
        assert_eq!(tools("tools.shop = 'memory:own'", &nouns), shop("memory:own,nouns=n.jsonl"));
        assert_eq!(
            tools("tools.shop = 'memory:own,nouns=o.jsonl'", &nouns),
            shop("memory:own,nouns=n.jsonl")
        );
        let flag = ["--pos-nouns", "n.jsonl", "--tool", "shop=memory:flag"];
        assert_eq!(tools("tools.shop = 'memory:own'", &flag), shop("memory:flag,nouns=n.jsonl"));
        assert_eq!(tools("tools.shop = 'memory:own'", &[]), shop("memory:own"));
    }

    #[test]
    fn the_paper_preset_names_the_data_and_how_to_get_it() {
        let tasks = ["gsm8k", "svamp", "webshop"].map(str::to_owned).to_vec();
        let paper = |data: Option<&str>| {
            let spec = RunSpec {
                preset: Some(Preset::Paper),
                tasks: Some(tasks.clone()),
                models: Some(vec![ModelSet::of("builtin:tiny")]),
                data: data.map(Into::into),
                ..RunSpec::default()
            };
            check_preset_data(&spec.resolve().unwrap())
        };
        let failure = paper(None).unwrap_err();
        let message = failure.error.to_string();
        assert!(message.contains("missing gsm8k/test.jsonl, svamp/test.json, webshop/"), "{message}");
        let hint = failure.hint.unwrap();
        assert!(hint.starts_with("download it with `lumos fetch gsm8k svamp --data data`"), "{hint}");
        assert!(hint.contains("webshop") && hint.contains("add `--data data`"), "{hint}");
        assert!(paper(Some("data")).is_ok());
    }
}
