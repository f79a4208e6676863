//! Addresses of Wikipedia pages, and the titles they contain.

use lumos_tasks::WikiRequest;
use percent_encoding::percent_decode_str;

/// Wikipedia's address.
pub(super) const SITE: &str = "https://en.wikipedia.org";
/// Path prefix of a page's name.
const PAGES: &str = "/wiki/";

/// Returns the address of the page with a title. Nothing is escaped, because the episode extracts the title
/// from the address.
pub(super) fn page_address(title: &str) -> String {
    format!("{SITE}{PAGES}{}", title.replace(' ', "_"))
}

/// Returns the titles that a request may refer to, most literal first: its text, or the name in its path, as
/// it is and percent-decoded.
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
