"""From program bytes to started units: fetch, extents, resolve, dispatch, issue, claims."""
