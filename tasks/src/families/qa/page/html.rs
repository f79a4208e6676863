//! Extracts the text of a page's elements as BeautifulSoup does with Python's `html.parser`.
//!
//! html5ever provides the tokens. Elements nest as in that tree builder and not as in a browser: nothing is
//! closed implicitly, an end tag closes everything up to its start tag, and an end tag without a start tag is
//! ignored. An element's text is a range of the page's text, so that deep nesting costs nothing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use super::references;
use crate::python::is_space;

/// Void elements, which are empty even without a closing slash.
const VOID: [&str; 24] = [
    "area", "base", "basefont", "bgsound", "br", "col", "command", "embed", "frame", "hr", "image", "img",
    "input", "isindex", "keygen", "link", "menuitem", "meta", "nextid", "param", "source", "spacer", "track",
    "wbr",
];
/// Elements whose text is not visible text.
const SILENT: [&str; 5] = ["rt", "rp", "style", "script", "template"];
/// Elements that preserve white space.
const VERBATIM: [&str; 2] = ["pre", "textarea"];
/// The class of headings in a list of search results.
const RESULT_HEADING: &str = "mw-search-result-heading";
/// Size in bytes of the pieces that are tokenized at a time. The tokenizer uses 32-bit counts.
const PIECE: usize = 64 << 10;

/// A page's text and the ranges of its relevant elements, each kind in document order.
#[derive(Debug, Default)]
pub(super) struct Elements {
    text: String,
    /// Headings of search results.
    headings: Vec<Range<usize>>,
    /// Rows of tables.
    rows: Vec<Range<usize>>,
    paragraphs: Vec<Range<usize>>,
    lists: Vec<Range<usize>>,
}

impl Elements {
    /// Parses a page. Fails if a tag or comment fills a whole piece.
    pub(super) fn read(html: &str) -> Result<Self, &'static str> {
        let options = TokenizerOpts { discard_bom: false, ..TokenizerOpts::default() };
        let tokenizer = Tokenizer::new(Sink::default(), options);
        let input = BufferQueue::default();
        for piece in pieces(&references::rewrite(html), PIECE) {
            input.push_back(StrTendril::from(piece));
            // No scripts are run, so the tokenizer never waits for one.
            while !input.is_empty() {
                let _ = tokenizer.feed(&input);
            }
            // The tokenizer compares each attribute with all earlier ones of its tag. Text always has tokens.
            let has_token = tokenizer.sink.has_token.replace(false);
            if !has_token && piece.len() >= PIECE {
                return Err("a tag or comment of the page is too long");
            }
        }
        tokenizer.end();
        Ok(tokenizer.sink.tree.into_inner().finish())
    }

    /// Texts of the headings of search results.
    pub(super) fn headings(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.headings)
    }

    /// Texts of the rows of tables.
    pub(super) fn rows(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.rows)
    }

    /// Texts of all paragraphs, then of all lists (text of nested ones is repeated), in the original's order.
    pub(super) fn paragraphs_and_lists(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.paragraphs).chain(self.texts(&self.lists))
    }

    fn texts<'a>(&'a self, ranges: &'a [Range<usize>]) -> impl Iterator<Item = &'a str> {
        ranges.iter().filter_map(|range| self.text.get(range.clone()))
    }
}

/// Splits a text into pieces of at most about `most` bytes.
fn pieces(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, behind) = rest.split_at(rest.ceil_char_boundary(most));
        rest = behind;
        Some(piece)
    })
}

/// An open element.
#[derive(Debug)]
struct Open {
    name: String,
    start: usize,
    /// Its kind and index in the list of that kind.
    kept: Option<(Kind, usize)>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Heading,
    Row,
    Paragraph,
    List,
}

#[derive(Debug, Default)]
struct Tree {
    elements: Elements,
    /// Text since the last tag.
    pending: String,
    open: Vec<Open>,
    /// Number of open elements by name.
    count: HashMap<String, usize>,
    silent: usize,
    verbatim: usize,
}

impl Tree {
    fn kept(&mut self, kind: Kind) -> &mut Vec<Range<usize>> {
        match kind {
            Kind::Heading => &mut self.elements.headings,
            Kind::Row => &mut self.elements.rows,
            Kind::Paragraph => &mut self.elements.paragraphs,
            Kind::List => &mut self.elements.lists,
        }
    }

    /// Ends a run of text. A run of blanks becomes a single blank.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if self.silent > 0 {
            return;
        }
        let blank = |character: char| matches!(character, ' ' | '\n' | '\t' | '\u{c}' | '\r');
        if self.verbatim > 0 || pending.is_empty() || !pending.chars().all(blank) {
            self.elements.text.push_str(&pending);
        } else {
            self.elements.text.push(if pending.contains('\n') { '\n' } else { ' ' });
        }
    }

    fn start(&mut self, tag: &Tag) -> Option<RawKind> {
        self.flush();
        let name: &str = &tag.name;
        let start = self.elements.text.len();
        let kind = match name {
            "div" if has_class(tag, RESULT_HEADING) => Some(Kind::Heading),
            "tr" => Some(Kind::Row),
            "p" => Some(Kind::Paragraph),
            "ul" => Some(Kind::List),
            _ => None,
        };
        let kept = kind.map(|kind| {
            let list = self.kept(kind);
            list.push(start..start);
            (kind, list.len() - 1)
        });
        self.silent += usize::from(SILENT.contains(&name));
        self.verbatim += usize::from(VERBATIM.contains(&name));
        *self.count.entry(name.to_owned()).or_default() += 1;
        self.open.push(Open { name: name.to_owned(), start, kept });
        if tag.self_closing || VOID.contains(&name) {
            self.end(name);
            None
        } else {
            matches!(name, "script" | "style").then_some(RawKind::Rawtext)
        }
    }

    fn end(&mut self, name: &str) {
        self.flush();
        while self.count.get(name).is_some_and(|count| *count > 0) {
            if self.close().is_none_or(|closed| closed == name) {
                break;
            }
        }
    }

    /// Closes the innermost element and returns its name.
    fn close(&mut self) -> Option<String> {
        let Open { name, start, kept } = self.open.pop()?;
        let end = self.elements.text.len();
        if let Some((kind, index)) = kept
            && let Some(range) = self.kept(kind).get_mut(index)
        {
            *range = start..end;
        }
        self.silent -= usize::from(SILENT.contains(&name.as_str()));
        self.verbatim -= usize::from(VERBATIM.contains(&name.as_str()));
        if let Some(count) = self.count.get_mut(&name) {
            *count -= 1;
        }
        Some(name)
    }

    fn finish(mut self) -> Elements {
        self.flush();
        while self.close().is_some() {}
        self.elements
    }
}

fn has_class(tag: &Tag, class: &str) -> bool {
    tag.attrs
        .iter()
        .filter(|attribute| &*attribute.name.local == "class")
        .any(|attribute| attribute.value.split(is_space).any(|word| word == class))
}

/// The tokenizer's sink, which only gets shared references.
#[derive(Debug, Default)]
struct Sink {
    tree: RefCell<Tree>,
    /// Whether the current piece has a token.
    has_token: Cell<bool>,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        if !matches!(token, Token::ParseError(_)) {
            self.has_token.set(true);
        }
        let mut tree = self.tree.borrow_mut();
        match token {
            Token::CharacterTokens(text) => tree.pending.push_str(&text),
            Token::NullCharacterToken => tree.pending.push('\0'),
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => {
                if let Some(raw) = tree.start(&tag) {
                    return TokenSinkResult::RawData(raw);
                }
            }
            Token::TagToken(tag) => tree.end(&tag.name),
            Token::CommentToken(_) | Token::DoctypeToken(_) => tree.flush(),
            Token::EOFToken | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paragraphs(html: &str) -> Vec<String> {
        Elements::read(html).unwrap().paragraphs_and_lists().map(str::to_owned).collect()
    }

    #[test]
    fn nothing_is_closed_implicitly() {
        assert_eq!(paragraphs("<p>a<p>b</p>c</p>d"), ["abc", "b"]);
        assert_eq!(paragraphs("<p>a<ul><li>b<li>c</ul>d</p>"), ["abcd", "bc"]);
        assert_eq!(paragraphs("<p>a</i>b<i>c</p>d"), ["abc"]);
        assert_eq!(paragraphs("<p>never closed<br>at all"), ["never closedat all"]);
    }

    /// Expected values from BeautifulSoup 4.12.2.
    #[test]
    fn the_character_zero_is_kept() {
        assert_eq!(paragraphs("<p>a&#0;b\0c&#x00;</p>"), ["a\0b\0c\0"]);
        assert_eq!(paragraphs("<p title='&#0;'>&#128;&#129;&#1114112;</p>"), ["\u{20ac}\u{81}\u{fffd}"]);
    }

    #[test]
    fn what_no_reader_sees_is_no_text() {
        let html =
            "<p>a<!-- no -->b<script>\"<p>no</p>\"</script><style>no</style><rp>(</rp><rt>no</rt>c</p>";
        assert_eq!(paragraphs(html), ["abc"]);
    }

    #[test]
    fn blanks_between_tags_shrink() {
        assert_eq!(paragraphs("<p><b>a</b>  \t <i>b</i> \n\n <i>c</i>  d</p>"), ["a b\nc  d"]);
        assert_eq!(paragraphs("<p><pre>  </pre></p>"), ["  "]);
    }

    #[test]
    fn entities_and_classes() {
        assert_eq!(paragraphs("<p>a&nbsp;&amp;&#32;&#x5c71;</p>"), ["a\u{a0}& 山"]);
        let html = "<div class=\"x mw-search-result-heading\"> One </div><div class=mw-search>no</div>";
        assert_eq!(Elements::read(html).unwrap().headings().collect::<Vec<_>>(), [" One "]);
    }

    #[test]
    fn deep_nesting_is_read_in_one_go() {
        let html = "<p>a<b>".repeat(200_000) + &"</i>".repeat(200_000);
        let elements = Elements::read(&html).unwrap();
        assert_eq!(elements.paragraphs.len(), 200_000);
        assert_eq!(elements.text.len(), 200_000);
    }

    #[test]
    fn pieces_do_not_change_what_is_read() {
        let end = "a&amp;b\r\n<b title='&lt;'>é</b><!-- no -->&#x5c71;</p>";
        for length in PIECE - end.len() - 3..PIECE {
            let text = "x".repeat(length);
            assert_eq!(paragraphs(&format!("<p>{text}{end}")), [format!("{text}a&b\né山")]);
        }
    }

    #[test]
    fn a_tag_of_many_attributes_is_refused() {
        let value = "x".repeat(50);
        let attributes: String = (0..4_000).map(|number| format!(" a{number}={value}")).collect();
        assert!(Elements::read(&format!("<p>a</p><p{attributes}>")).is_err());
        let (comment, script) = ("x".repeat(PIECE - 7), "if (a <b && c) ".repeat(PIECE));
        let html = format!("<p>a<!--{comment}-->b<script>{script}</script>c</p>");
        assert_eq!(paragraphs(&html), ["abc"]);
    }
}
