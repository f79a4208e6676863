//! Addresses of the encyclopaedia's pages, and titles out of them.

use lumos_tasks::WikiRequest;
use percent_encoding::percent_decode_str;

/// The encyclopaedia's site.
pub(super) const SITE: &str = "https://en.wikipedia.org";
/// What stands before a page's name in its path.
const PAGES: &str = "/wiki/";

/// The address of the page of a title. The episode takes the title out of it again, so nothing is escaped.
pub(super) fn page_address(title: &str) -> String {
    format!("{SITE}{PAGES}{}", title.replace(' ', "_"))
}

/// The titles that a request may mean, the most literal first: its text, or the name in its path, as it stands and
/// with escapes undone.
pub(super) fn titles_of(request: &WikiRequest) -> Vec<String> {
    let text = request.text();
    let name = match request {
        WikiRequest::Find(_) => return vec![text.to_owned()],
        WikiRequest::Path(_) | WikiRequest::Address(_) => {
            text.split_once(PAGES).map_or(text, |(_, name)| name).replace('_', " ")
        }
    };
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
    if decoded == name { vec![name] } else { vec![name, decoded] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_in_addresses_are_titles() {
        let titles = |query: &str| titles_of(&WikiRequest::of(query));
        assert_eq!(titles("New York"), ["New York"]);
        assert_eq!(titles("/wiki/New_York"), ["New York"]);
        let address = "https://en.wikipedia.org/wiki/Antoni_Gaud%C3%AD?x#Life";
        assert_eq!(titles(address), ["Antoni Gaud%C3%AD?x#Life", "Antoni Gaudí"]);
    }

    proptest! {
        #[test]
        fn a_title_comes_back_from_its_address(title in "[^_]{1,30}") {
            let address = page_address(&title);
            prop_assert_eq!(&titles_of(&WikiRequest::Address(address))[0], &title);
        }
    }
}
