"""The conformance suite is graded itself: by sound peers, and by peers broken on purpose."""
