package canary

// isCanary reports whether a destination of a route is the Service of the canary.
func (r *Release) isCanary(destination map[string]any) bool {
	name, _ := destination["name"].(string)
	if host, istio := nested(destination, "destination")["host"].(string); istio {
		name = host
	}
	return name == r.Apex+"-canary"
}
