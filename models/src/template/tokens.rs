//! Limits of a template before it is parsed: minijinja's parser and compiler recurse for each operator.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Maximum names, operators and opening brackets in a tag. Each can nest its expression one level deeper.
const MOST_OPERATORS: usize = 300;
/// Maximum `elif` tags of a template. Each nests the rest of its chain one level deeper.
const MOST_ELIFS: usize = 200;
/// Maximum nesting depth of `macro` and `call` tags. The compiler visits a text once for each enclosing tag, and
/// templates are compiled for each prompt.
const DEEPEST_MACROS: usize = 4;

/// Checks a template before it is parsed. The parser and compiler recurse for each operator and each `elif`, and
/// compute constants before any limit applies. The error is a message.
pub(super) fn check_tokens(source: &str, syntax: &SyntaxConfig) -> Result<(), String> {
    let tokens: Vec<Token<'_>> =
        tokenize(source, false, syntax.clone()).map_while(Result::ok).map(|(token, _)| token).collect();
    if multiplies_constants(&tokens) {
        return Err("multiplying a text or list with `*` is not supported".to_owned());
    }
    let mut operators = 0;
    for token in &tokens {
        match token {
            Token::VariableStart | Token::BlockStart => operators = 0,
            // They nest nothing, and long lists consist of them.
            Token::TemplateData(_)
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_)
            | Token::Comma
            | Token::Colon
            | Token::ParenClose
            | Token::BracketClose
            | Token::BraceClose
            | Token::VariableEnd
            | Token::BlockEnd => {}
            _ => operators += 1,
        }
        if operators > MOST_OPERATORS {
            return Err(format!("a tag has more than {MOST_OPERATORS} names, operators and brackets"));
        }
    }
    if tokens.iter().filter(|token| matches!(token, Token::Ident("elif"))).count() > MOST_ELIFS {
        return Err(format!("the template has more than {MOST_ELIFS} `elif` tags"));
    }
    if has_deep_macros(&tokens) {
        return Err(format!("`macro` and `call` tags are nested more than {DEEPEST_MACROS} deep"));
    }
    Ok(())
}

fn has_deep_macros(tokens: &[Token<'_>]) -> bool {
    let mut depth: usize = 0;
    tokens.windows(2).any(|window| {
        match window {
            [Token::BlockStart, Token::Ident("macro" | "call")] => depth += 1,
            [Token::BlockStart, Token::Ident("endmacro" | "endcall")] => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEEPEST_MACROS
    })
}

/// Whether an operand of `*` is, or may be, a constant string or list. The compiler would multiply it before
/// any limit applies.
fn multiplies_constants(tokens: &[Token<'_>]) -> bool {
    let text = |token: &Token<'_>| matches!(token, Token::Str(_) | Token::String(_));
    tokens.windows(3).any(|window| {
        let [left, Token::Mul, right] = window else { return false };
        let left_constant = text(left) || matches!(left, Token::ParenClose | Token::BracketClose);
        // After `(` and `,` it unpacks arguments.
        let unpacks = matches!(left, Token::ParenOpen | Token::Comma);
        let right_constant = text(right) || matches!(right, Token::ParenOpen | Token::BracketOpen);
        left_constant || (right_constant && !unpacks)
    })
}
