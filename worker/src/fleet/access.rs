//! What the runs of a queue may use on a worker.

use std::path::PathBuf;

use lumos_http::AccessPolicy;
use lumos_models::hub::HubSettings;
use lumos_tools::WikiSettings;
use url::Url;

/// Default data folder, if `LUMOS_DATA` is not set.
const DATA: &str = "data";

/// Creates the policy of a worker from the hosts and paths that its operator allows, plus the defaults:
/// loopback hosts; `api.openai.com` if an API key for it is set; the host of `OPENAI_BASE_URL`; the data
/// folder (`LUMOS_DATA`, or `data`); the cache of the Hugging Face hub; and the cache of tools.
///
/// A host is `HOST`, `HOST:PORT` or `*`.
///
/// # Errors
/// If a host is invalid or a path is empty.
pub fn worker_access(hosts: &[String], paths: &[PathBuf]) -> Result<AccessPolicy, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (mut hosts, mut paths) = (hosts.to_vec(), paths.to_vec());
    if ["OPENAI_API_KEY", "OPENAI_API_KEY_API_OPENAI_COM"].iter().any(|name| variable(name).is_some()) {
        hosts.push("api.openai.com:443".to_owned());
    }
    let base = variable("OPENAI_BASE_URL").and_then(|base| Url::parse(&base).ok());
    if let Some((host, port)) = base.as_ref().and_then(|url| url.host().zip(url.port_or_known_default())) {
        hosts.push(format!("{host}:{port}"));
    }
    let data = variable("LUMOS_DATA").unwrap_or_else(|| DATA.to_owned());
    let hub = HubSettings::from_environment().ok().map(|hub| hub.cache);
    let tools = WikiSettings::from_environment().ok().and_then(|wiki| wiki.cache);
    let folders = [Some(PathBuf::from(data)), hub, tools].into_iter().flatten();
    paths.extend(folders.filter_map(|folder| std::path::absolute(folder).ok()));
    AccessPolicy::only(&hosts, &paths)
}
