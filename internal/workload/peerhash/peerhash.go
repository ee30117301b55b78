package peerhash

func Of(template map[string]any) string { return "" }
