//! Provides files of data sets, as `fetch` provides models: from the cache if the revision is a commit, otherwise
//! after asking the hub for the commit of the branch or tag.

use super::error::HubError;
use super::layout::Layout;
use super::listing::Listing;
use super::name::{HubName, is_data_file};
use super::site::Site;
use super::{HubData, SHOWN, transfer};

/// Finds a file at a commit in the cache, which needs no request.
pub(super) fn cached_commit(site: &Site, name: &HubName, file: &str) -> Option<HubData> {
    let data = at(&Layout::new(&site.settings.cache, name), name, name.commit()?, file);
    // A file appears in its commit's folder only when it is complete.
    (is_data_file(file) && data.path.is_file()).then_some(data)
}

fn at(layout: &Layout, name: &HubName, commit: &str, file: &str) -> HubData {
    HubData { name: name.at(commit), path: layout.snapshot(commit).join(file) }
}

/// See [`Hub::fetch_data`](super::Hub::fetch_data).
pub(super) async fn fetch(site: &Site, name: &HubName, file: &str) -> Result<HubData, HubError> {
    if !is_data_file(file) {
        return Err(HubError::FileName { file: file.to_owned() });
    }
    // Another thread may have downloaded it in the meantime.
    if let Some(data) = cached_commit(site, name, file) {
        return Ok(data);
    }
    let layout = Layout::new(&site.settings.cache, name);
    let at = |commit: &str| at(&layout, name, commit, file);
    let kept = |commit: &str| Some(at(commit)).filter(|data| data.path.is_file());
    let noted = || layout.noted(name.revision()).as_deref().and_then(kept);
    if site.settings.offline {
        return noted().ok_or_else(|| site.offline(name));
    }
    let body = match site.describe(name).await {
        Ok(body) => body,
        Err(error @ HubError::Unreachable { .. }) => {
            let Some(data) = noted() else { return Err(error) };
            tracing::warn!("{error}; using the cached copy of {}", data.name);
            return Ok(data);
        }
        Err(error) => return Err(error),
    };
    let listing = Listing::read(&body).map_err(|message| site.answer(&message))?;
    if !listing.files().any(|known| known == file) {
        return Err(HubError::Missing {
            id: name.id().to_owned(),
            host: site.host(),
            what: file.to_owned(),
            known: similar(&listing, file),
        });
    }
    let pinned = name.at(listing.commit());
    transfer::ensure(site, &layout, &pinned, file).await?;
    if name.commit().is_none() {
        layout.note(name.revision(), listing.commit());
    }
    Ok(at(listing.commit()))
}

/// Returns files of the same format as a missing one.
fn similar(listing: &Listing, file: &str) -> Vec<String> {
    let ending = file.rsplit('.').next().unwrap_or_default();
    let fits = |known: &&str| is_data_file(known) && known.ends_with(ending);
    listing.files().filter(fits).take(SHOWN).map(str::to_owned).collect()
}
