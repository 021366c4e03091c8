//! Addresses: a table of them, looked up by method and path.

/// Methods that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
    Head,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::Head => "HEAD",
        }
    }
}

/// A method and a path stand for a call. Segments in braces are parameters.
#[derive(Clone, Copy, Debug)]
pub struct Route<C: 'static> {
    pub method: Method,
    pub path: &'static str,
    pub call: C,
}

/// The first route that fits, and its parameters in the order of the path.
pub fn find<'a, C: Copy>(routes: &[Route<C>], method: &str, segments: &[&'a str]) -> Option<(C, Vec<&'a str>)> {
    let mut fitting = routes.iter().filter(|route| route.method.name() == method);
    fitting.find_map(|route| Some((route.call, parameters(route.path, segments)?)))
}

/// Methods that the routes have for a path; where one is written out, those of that alone, since its last segment is no
/// parameter of another.
pub fn methods_of<C>(routes: &[Route<C>], segments: &[&str]) -> Vec<&'static str> {
    let fitting = || routes.iter().filter(|route| parameters(route.path, segments).is_some());
    let fewest = fitting().map(|route| route.path.matches('{').count()).min();
    fitting().filter(|route| Some(route.path.matches('{').count()) == fewest).map(|route| route.method.name()).collect()
}

fn parameters<'a>(path: &str, segments: &[&'a str]) -> Option<Vec<&'a str>> {
    let wanted: Vec<&str> = path.split('/').skip(1).collect();
    if wanted.len() != segments.len() {
        return None;
    }
    let mut found = Vec::new();
    for (wanted, segment) in wanted.iter().zip(segments) {
        if wanted.starts_with('{') {
            found.push(*segment);
        } else if wanted != segment {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_out_comes_before_parameters() {
        let route = |path, call| Route { method: Method::Get, path, call };
        let routes = [route("/a/all", 1), route("/a/{x}", 2), route("/a/{x}/b/{y}", 3)];
        for (method, path, expected) in [
            ("GET", "a/all", Some((1, vec![]))),
            ("GET", "a/other", Some((2, vec!["other"]))),
            ("GET", "a/x/b/y", Some((3, vec!["x", "y"]))),
            ("POST", "a/all", None),
            ("GET", "a", None),
            ("GET", "b/all", None),
        ] {
            let segments: Vec<&str> = path.split('/').collect();
            assert_eq!(find(&routes, method, &segments), expected, "{method} {path}");
        }
        assert_eq!(methods_of(&routes, &["a", "all"]), ["GET"]);
        assert_eq!(methods_of(&routes, &["a", "x"]), ["GET"]);
        assert_eq!(methods_of(&routes, &["b"]), [""; 0]);
    }
}
