package encodedcache

import "sync"

// maxRecent is the number of objects that remain decoded, of about 10 kB each. A release in progress uses about ten.
const maxRecent = 2048

// Recent are the objects of all informers that were decoded last. Its zero value is ready for use.
type Recent struct {
	mu sync.Mutex
	// objects is a ring: next is the place of the next object, and when it is full, of the oldest one.
	objects []*storedObject
	next    int
}

// add records that an object was decoded. The one that was decoded maxRecent objects before is decoded no longer.
func (r *Recent) add(object *storedObject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.objects) < maxRecent {
		r.objects = append(r.objects, object)
		return
	}
	r.objects[r.next].decoded.Store(nil)
	r.objects[r.next] = object
	r.next = (r.next + 1) % maxRecent
}

// Forget makes all objects exist in their stored form only, for a process that has become idle.
func (r *Recent) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, object := range r.objects {
		object.decoded.Store(nil)
	}
	r.objects, r.next = nil, 0
}
