//! The load of a vLLM server, from its metrics in Prometheus's text format
//! (<https://docs.vllm.ai/en/latest/usage/metrics.html>).

use lumos_http::ServerLoad;

/// Maximum size of metrics in bytes.
pub(super) const MOST_BYTES: usize = 1 << 20;

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
/// The cache's usage, in current and in older versions.
const CACHE: [&str; 2] = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"];

/// Parses metrics. Requests are added over all models and engines; the cache's usage is the highest one. `None` if the
/// server is not vLLM.
pub(super) fn load(text: &str) -> Option<ServerLoad> {
    let (mut running, mut waiting, mut cache_usage) = (None, 0.0, None);
    for line in text.lines() {
        let Some((name, value)) = sample(line) else { continue };
        match name {
            RUNNING => running = Some(running.unwrap_or(0.0) + value),
            WAITING => waiting += value,
            name if CACHE.contains(&name) => cache_usage = Some(value.max(cache_usage.unwrap_or(0.0))),
            _ => {}
        }
    }
    Some(ServerLoad { running: running?, waiting, cache_usage })
}

/// Parses `name{labels} value`. The value is finite and not negative.
fn sample(line: &str) -> Option<(&str, f64)> {
    let name = line.split(['{', ' ']).next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let rest = line.get(name.len()..)?;
    // A label's value may contain a closing brace.
    let rest = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_load_of_vllm_is_read() {
        let text = "# HELP vllm:num_requests_running Number of requests\n\
                    vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 3.0\n\
                    vllm:num_requests_running{engine=\"1\",model_name=\"a}b\"} 2.0 1700000000\n\
                    vllm:num_requests_waiting{engine=\"0\"} 4\n\
                    vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
                    vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n";
        let expected = ServerLoad { running: 5.0, waiting: 4.0, cache_usage: Some(0.5) };
        assert_eq!(load(text), Some(expected));
        let older = "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.75";
        assert_eq!(load(older), Some(ServerLoad { running: 1.0, waiting: 0.0, cache_usage: Some(0.75) }));
        for other in
            ["", "http_requests_total 7", "vllm:num_requests_running NaN", "vllm:num_requests_running -1"]
        {
            assert_eq!(load(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>(), lines in proptest::collection::vec("[a-z:_{}\"= 0-9.e+-]{0,40}", 0..9)) {
            let _ = load(&text);
            let written = format!("{}\n{RUNNING}{{x=\"1\"}} 2\n{}", lines.join("\n"), lines.concat());
            prop_assert!(load(&written).is_some_and(|load| load.running >= 2.0));
        }
    }
}
